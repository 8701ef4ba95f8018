// A model on the CPU.
#pragma once
#include <memory>
#include <vector>

#include "core/leases.h"
#include "core/thread_pool.h"
#include "engine/cpu/embedding.h"
#include "engine/cpu/head.h"
#include "engine/cpu/layer.h"
#include "engine/cpu/workspace.h"
#include "engine/device/device.h"

namespace tsm {

class CpuDevice : public Device {
 public:
  // `config` and `pool` outlive it.
  CpuDevice(const ModelFile& file, const Config& config, const StateLayout& layout, const Isa& isa,
            Weights weights, ThreadPool& pool);

  const char* name() const override { return isa_.name; }
  int64_t weight_bytes() const override;
  int64_t slot_bytes() const override { return floats_ * 4; }
  int64_t most_streams() const override;
  bool interprets(int64_t layer) const override { return layers_[size_t(layer)]->interpreted(); }

  Slot create() override;
  void release(const Slot& slot) noexcept override;
  void clear(const Slot& slot) override;
  void copy(const Slot& from, const Slot& to) override;
  using Device::read;
  void read(const Slot* const* slots, int64_t count, float* states) const override;
  void write(const Slot& slot, const float* states) override;
  float* on_host(const Slot& slot) const override { return slot.memory; }
  NotFinite feed(const Chunk* chunks, const int64_t* order, Slot* const* slots, int64_t count,
                 Cancel* cancel, bool keep) override;

 private:
  friend class CpuFeed;

  const Config& config_;
  const Isa& isa_;
  const int64_t floats_;  // of a stream's states
  double shortest_dt_ = 0;
  std::vector<std::unique_ptr<CpuLayer>> layers_;
  std::unique_ptr<CpuHead> head_;
  Embedding embedding_;
  ThreadPool& pool_;
  Leases<CpuWorkspace> workspaces_;
};

}  // namespace tsm
