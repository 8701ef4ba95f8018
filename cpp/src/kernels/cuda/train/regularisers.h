// The gradients of activation regularisers (AR and TAR, Merity et al. 2017), on a GPU.
#pragma once
#include <cstdint>

namespace tsm::cuda {

// None: 0 rows.
struct Activations {
  const void* values = nullptr;    // [rows][steps][units]; the units of a step are neighbours
  int64_t row_step = 0, step = 0;  // numbers from one row, or step, to the next
  int64_t rows = 0, steps = 1, units = 8;
  float factor = 0;
  void* grad = nullptr;  // contiguous
};

// AR: grad = count factor y_t. TAR: grad = count factor ((y_{t+1} - y_t) - (y_t - y_{t-1})), with y
// before the first and after the last step equal to its neighbour. Values and gradients are float
// or bfloat16; computed in float. Asynchronous on `stream`, of the current device.
void regulariser_gradients(bool is_float, const float* count, const Activations& ar,
                           const Activations& tar, uintptr_t stream);

}  // namespace tsm::cuda
