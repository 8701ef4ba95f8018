// A model on a CUDA device.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/leases.h"
#include "engine/cuda/head.h"
#include "engine/cuda/layer.h"
#include "engine/cuda/slot_pool.h"
#include "engine/device/device.h"

namespace tsm::cuda {

class CudaDevice : public Device {
 public:
  CudaDevice(const ModelFile& file, const StateLayout& layout, Weights kind);

  const char* name() const override { return name_.c_str(); }
  int64_t weight_bytes() const override;
  int64_t slot_bytes() const override { return 2 * floats_ * 4; }
  int64_t most_streams() const override { return 1024; }

  Slot create() override;
  void release(const Slot& slot) noexcept override;
  void clear(const Slot& slot) override;
  void copy(const Slot& from, const Slot& to) override;
  using Device::read;
  void read(const Slot* const* slots, int64_t count, float* states) const override;
  void write(const Slot& slot, const float* states) override;
  // A slot has two copies of the states. A feed reads the current one and writes the other, which
  // becomes current on success if `keep` is set.
  NotFinite feed(const Chunk* chunks, const int64_t* order, Slot* const* slots, int64_t count,
                 Cancel* cancel, bool keep) override;

 private:
  friend class CudaFeed;
  float* side(const Slot& slot, int which) const { return slot.memory + which * floats_; }
  float* current(const Slot& slot) const { return side(slot, slot.current); }
  size_t state_bytes() const { return size_t(floats_) * 4; }

  const Config config_;
  const Weights kind_;
  const int64_t floats_;  // in one copy of the states
  std::string name_;
  std::vector<CudaLayer> layers_;
  std::unique_ptr<CudaHead> head_;
  DeviceArray<char> embedding_;  // rows of activations
  int64_t embedding_stride_ = 0;
  SlotPool pool_;
  mutable Leases<CudaWorkspace> workspaces_;
};

}  // namespace tsm::cuda
