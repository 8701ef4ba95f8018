// One call that feeds chunks to streams on the device, in slices: one copy to the device, then
// layers and head, then one copy back.
#pragma once
#include <algorithm>

#include "engine/cuda/device.h"

namespace tsm::cuda {

class CudaFeed {
 public:
  CudaFeed(const CudaDevice& device, CudaWorkspace& workspace, const Chunk* chunks,
           const int64_t* order, Slot* const* slots, int64_t count, Cancel* cancel)
      : device_(device),
        workspace_(workspace),
        chunks_(chunks),
        order_(order),
        slots_(slots),
        count_(count),
        cancel_(cancel) {}

  NotFinite run();

 private:
  // A part of the group: the first `streams` streams, `steps` steps from step `done` on.
  struct Part {
    int64_t streams, done, steps;
  };
  // The same part in the layout of the device.
  struct Sent {
    Slices slice{};
    InputRows input;                // tokens, or `values` once they are on the device
    const float* values = nullptr;  // [rows, I]
    Outputs logits, scores;
    bool before;  // whether h before the slice is needed
  };

  const Chunk& chunk(int64_t i) const { return chunks_[order_[first_ + i]]; }
  bool blocked(int64_t streams) const;
  int64_t most_rows(int64_t streams) const;
  bool group(int64_t streams);
  bool slice(const Part& part);
  bool recordable(const Part& part, const Sent& sent) const;
  Graphs::Key key(const Part& part, const Sent& sent) const;
  const void* enqueue(const Part& part, Sent& sent);
  const void* run_layers(const Part& part, const Sent& sent);
  const void* run_blocked(const Part& part, const Sent& sent);
  int64_t steps_of(const Part& part, int64_t i) const {  // of stream i
    return std::min(part.steps, std::max<int64_t>(0, chunk(i).steps - part.done));
  }
  void count_rows(const Part& part);
  bool list_wanted(const Part& part);
  uint32_t take_tags(const Part& part);
  Sent pack(const Part& part);
  void fill_inputs(const Part& part, Sent& sent, int64_t rows, int32_t* tokens);
  NotFinite failure() const;

  const CudaDevice& device_;
  CudaWorkspace& workspace_;
  const Chunk* chunks_;
  const int64_t* order_;
  Slot* const* slots_;
  const int64_t count_;
  Cancel* const cancel_;
  int64_t first_ = 0;  // of the group
};

}  // namespace tsm::cuda
