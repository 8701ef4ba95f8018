// The end of an update on a GPU: the norm of all gradients, and a step of gradient descent.
#pragma once
#include <cstdint>
#include <vector>

namespace tsm::cuda {

struct TrainedArray {
  float* weight;
  const float* gradient;
  float* average;  // of the weights; null: none is kept
  int64_t length;
};

// Both are asynchronous on `stream`, of the current device. Sums have a fixed order.

// norm = |gradients of all arrays| / count, in float64; factor = min(1, limit / (norm + 1e-6)) /
// count. A count of 0 is replaced by the smallest normal float.
// out [2 + blocks]: 0, 0 before; norm, factor after. The rest is working memory.
void gradient_norm(const std::vector<TrainedArray>& arrays, const double* count, double limit,
                   int blocks, double* out, uintptr_t stream);

struct DescentStep {
  const double* factor;  // null: 1
  float rate, decay;     // weight -= rate (factor gradient + decay weight)
  float share;           // average += share (weight - average)
};
void descend(const std::vector<TrainedArray>& arrays, const DescentStep& step, uintptr_t stream);

}  // namespace tsm::cuda
