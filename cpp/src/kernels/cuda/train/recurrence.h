// The fused recurrence on a GPU, for training: the whole sequence in one launch, with U on the
// chip (teams/), or step by step (steps/). run/ says which, and implements this file.
//
// The arguments are those of kernels/recurrence.h; all arrays except `constants` are on the device.
// D is bfloat16 or float, states are float. Differences: z is D; H is a multiple of 8 and arrays
// are 16-byte aligned; `threads` is unused; lengths are not checked (they are on the device);
// grad_vectors is F [K,B,H], not yet summed over the batch. Calls are asynchronous on `stream`. The
// same input gives the same bits, because sums have a fixed order.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/recurrence.h"

namespace tsm {

// The number of devices that can run these kernels; 0 without a driver or a GPU.
int cuda_device_count();

// For measurements: the plan that calls for that cell and size use. words is "" if there is none;
// step_us is its estimate, in microseconds per step of all rows.
struct PlanInWords {
  std::string words;
  double step_us;
};
PlanInWords recurrence_cuda_plan(const std::string& cell, DType dtype, int device, int64_t B,
                                 int64_t H, bool backward);

// What the device has and which kernels it gets (plan.h: path_in_words); "" if this build has no
// code for it.
std::string recurrence_cuda_path(int device);

// For tests: plans from now on are those for a device like this (plan.h: pretended), "" for the
// real one. At the start it is the environment variable TSM_CUDA_PRETEND.
void recurrence_cuda_pretend(const std::string& like);

// For measurements: from now on calls for that cell and size use the plan of that rank (0: the best
// estimate; -1: step by step). Returns its description, or "" and changes nothing if there is no
// such plan or the device cannot run it.
std::string recurrence_cuda_take_plan(const std::string& cell, DType dtype, int device, int64_t B,
                                      int64_t H, bool backward, int rank);

// How often plans were replaced: whoever keeps a RecurrenceCuda makes it anew if this has changed.
int64_t recurrence_cuda_plan_version();

// pitch: steps from one row of zx, y, z, saved_states and grad_z to the next, at least T; if it is
// larger, grad_z of step T is set to 0. y_step: elements from one step of y or grad_y to the next,
// a multiple of 8 for y if there is U, else even; at least H for y. grad_y may have fewer than H
// units; the gradient of the others is 0. z may alias zx, and grad_z may alias z.
struct RecurrenceSetup {
  std::string cell;
  DType dtype;
  int device;
  int64_t B, H;
  bool backward;
  int64_t pitch, y_step;
  bool tf32;     // in float32, U and h (dz) may be rounded to tf32 for the products of single steps
  bool has_u;    // false: weight_h is null
  bool keeps_z;  // forward: z is given
};

// Runs `work` with the device current, and then makes the caller's device current again.
void on_device(int device, const std::function<void()>& work);

// One direction of a layer's recurrence: its kernel, plan and products are looked up once. Calls
// allocate nothing on the host. The device must be current.
class RecurrenceCuda {
 public:
  explicit RecurrenceCuda(const RecurrenceSetup& setup);
  ~RecurrenceCuda();
  RecurrenceCuda(const RecurrenceCuda&) = delete;
  RecurrenceCuda& operator=(const RecurrenceCuda&) = delete;

  int64_t workspace() const;  // bytes of 16-byte aligned scratch memory
  void forward(const RecurrenceForward& args, void* workspace, uintptr_t stream) const;
  void backward(const RecurrenceBackward& args, void* workspace, uintptr_t stream) const;

 private:
  struct Prepared;
  const std::unique_ptr<const Prepared> prepared_;
};

}  // namespace tsm
