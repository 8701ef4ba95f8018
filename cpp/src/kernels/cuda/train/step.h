// One element-wise step of a cell on a GPU: forward and backward over the generated headers.
//
// The product U h is the caller's. Dimensions as in recurrence.h; all arrays are float32 on the
// device, dense, row-major. Calls are asynchronous on `stream` (a cudaStream_t as an integer; 0 is
// the default stream).
#pragma once
#include <cstdint>
#include <string>

namespace tsm {

struct StepCuda {
  int64_t B, H;
  const float* z;           // [B,G*H]
  const float* state;       // [S,B,H]
  const float* vectors;     // [K,H]; may be null if K = 0
  const double* constants;  // on the host
  const float* dt;          // [B], or null: 1
};

// next [S,B,H]: the states after the step.
void step_forward_cuda(const std::string& cell, const StepCuda& args, float* next,
                       uintptr_t stream);

// Input: grad_next [S,B,H]. Outputs: grad_z [B,G*H], grad_state [S,B,H] and grad_vectors [K,B,H]
// (not yet summed over the batch).
void step_backward_cuda(const std::string& cell, const StepCuda& args, const float* grad_next,
                        float* grad_z, float* grad_state, float* grad_vectors, uintptr_t stream);

// The number of devices that can run these kernels; 0 without a driver or a GPU.
int cuda_device_count();

}  // namespace tsm
