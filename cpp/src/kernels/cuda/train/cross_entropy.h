// -log softmax(logits)[target] of many rows, and its gradient, on a GPU.
#pragma once
#include <cstdint>

namespace tsm::cuda {

struct LossRows {
  const void* logits;     // [rows][classes], contiguous
  bool is_float;          // or else bfloat16
  int64_t rows, classes;  // at least 1 class
  const int64_t* target;  // [rows]; kIgnored: loss and gradient are 0; other wrong values: both NaN
  float* log_sums;        // [rows], log of the sum of exp(logits)
};

constexpr int64_t kIgnored = -100;

// Both are asynchronous on `stream`, of the current device. The first one writes log_sums, the
// second one reads them.
void cross_entropy(const LossRows& rows, float* losses, uintptr_t stream);
// out [rows][classes] = grad [row * grad_step] (softmax(logits) - one_hot(target)), in the dtype of
// the logits
void cross_entropy_gradient(const LossRows& rows, const float* grad, int64_t grad_step, void* out,
                            uintptr_t stream);

}  // namespace tsm::cuda
