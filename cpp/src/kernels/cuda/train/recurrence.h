// The fused recurrence on a GPU, for training: the whole sequence in one launch, with U on the chip
// (plan.h).
//
// Arguments are those of recurrence.h with every array on the device but `constants`. D is bfloat16
// or float, states are float. Differences: z is D; H is a multiple of 8 and arrays begin at 16
// bytes; `threads` is not read; lengths are not checked (they are on the device); grad_vectors is F
// [K,B,H], not yet summed over the batch. Calls are asynchronous on `stream`. The same input gives
// the same bits: sums have a fixed order.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/recurrence.h"

namespace tsm {

// Bytes of scratch memory that a call needs, 16-byte aligned, contents of no matter; or -1 where
// the kernel cannot run: U does not fit on the chip of that device, or that is older than
// compute capability 9.0.
int64_t recurrence_cuda_workspace(const std::string& cell, DType dtype, int device, int64_t B,
                                  int64_t H, bool backward);

// For measurements: from now on calls of that cell and size use the plan of that rank (0: the best
// estimate). Returns its description, or "" if there is none or the device cannot run it: then
// nothing changes.
std::string recurrence_cuda_take_plan(const std::string& cell, DType dtype, int device, int64_t B,
                                      int64_t H, bool backward, int rank);

// pitch: steps from one row of zx, y, z, saved_states and grad_z to the next, T or more; grad_z of
// step T is 0 where there is one. y_step: numbers from one step of y or grad_y to the next, an even
// number, for y H or more; grad_y may have fewer units than H, the others' is 0. z may be zx, and
// grad_z z.
void recurrence_forward_cuda(const std::string& cell, DType dtype, const RecurrenceForward& args,
                             int64_t pitch, int64_t y_step, void* workspace, uintptr_t stream);
void recurrence_backward_cuda(const std::string& cell, DType dtype, const RecurrenceBackward& args,
                              int64_t pitch, int64_t y_step, void* workspace, uintptr_t stream);

}  // namespace tsm
