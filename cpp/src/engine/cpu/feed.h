// One call that feeds chunks to streams on the CPU, in slices. States are updated in place; on
// failure they are restored from a backup.
#pragma once
#include "engine/cpu/device.h"

namespace tsm {

constexpr int64_t kStreams = 64;  // at a time

class CpuFeed {
 public:
  CpuFeed(const CpuDevice& device, CpuWorkspace& workspace, const Chunk* chunks,
          const int64_t* order, Slot* const* slots, int64_t count, Cancel* cancel)
      : device_(device),
        workspace_(workspace),
        chunks_(chunks),
        order_(order),
        slots_(slots),
        count_(count),
        cancel_(cancel) {}

  NotFinite run(bool keep);

 private:
  void reserve();
  void put_back();
  // Feeds the streams order[first] .. order[first + count). Returns false if a state is not finite;
  // `bad_` then says which one.
  bool group(int64_t first, int64_t count);
  bool slice(const int64_t* order, int64_t streams, int64_t done, int64_t steps);
  void read_inputs(const int64_t* order, Slice& slice, int64_t done);
  void outputs(const int64_t* order, const Slice& slice, int64_t done);

  const CpuDevice& device_;
  CpuWorkspace& workspace_;
  const Chunk* chunks_;
  const int64_t* order_;
  Slot* const* slots_;
  const int64_t count_;
  Cancel* const cancel_;
  int64_t first_stream_ = 0;  // of the group
  NotFinite bad_;
};

}  // namespace tsm
