// The output on the device: logits = W h + b for the requested rows, and log-probabilities.
#pragma once
#include <vector>

#include "engine/cuda/matrix.h"
#include "engine/cuda/workspace.h"
#include "engine/file/config.h"

namespace tsm::cuda {

// The outputs that a call needs from a slice: `count` rows of y, listed in `rows` (on the device)
// or, if that is null, from first_row on. `tokens` are those whose log-probability is computed,
// `runs` the destinations on the host.
struct Outputs {
  const int32_t* rows = nullptr;
  int64_t first_row = 0;
  const int32_t* tokens = nullptr;  // null: logits
  const std::vector<Run>* runs = nullptr;
  int64_t count = 0;
};

class CudaHead {
 public:
  CudaHead(const ModelFile& file, Weights kind);

  int64_t bytes() const { return weight_.bytes() + bias_.bytes(); }
  // Returns when the results have been copied.
  void run(const void* y, int64_t stride, const Outputs& wanted, CudaWorkspace& workspace) const;

  // The same in two parts, for `count` results (at most block()) from `first` on: enqueue for the
  // device and, once the device has finished, deliver on the host.
  int64_t block() const;
  void enqueue(const void* y, int64_t stride, const Outputs& wanted, int64_t first, int64_t count,
               CudaWorkspace& workspace) const;
  void deliver(const Outputs& wanted, int64_t first, int64_t count,
               const CudaWorkspace& workspace) const;

 private:
  int64_t floats(const Outputs& wanted) const { return wanted.tokens ? 1 : weight_.outputs(); }

  Weights kind_;
  CudaMatrix weight_;
  DeviceArray<float> bias_;
};

}  // namespace tsm::cuda
