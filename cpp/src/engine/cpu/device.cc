#include "engine/cpu/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "engine/cpu/feed.h"

namespace tsm {

CpuDevice::CpuDevice(const ModelFile& file, const Config& config, const StateLayout& layout,
                     const Isa& isa, Weights weights, ThreadPool& pool)
    : config_(config), isa_(isa), floats_(layout.floats), pool_(pool) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    layers_.push_back(CpuLayer::load(file, int64_t(i), isa, weights, layout.at[i][0]));
    shortest_dt_ = std::max(shortest_dt_, config.layers[i].shortest_dt);
  }
  if (config.input == Config::Input::kTokens)
    embedding_ = Embedding(file.matrix("embedding", config.vocab_size, config.input_width));
  head_ = std::make_unique<CpuHead>(file, isa, weights);
}

int64_t CpuDevice::weight_bytes() const {
  int64_t total = head_->weight_bytes();
  for (const auto& layer : layers_) total += layer->weight_bytes();
  return total;
}

int64_t CpuDevice::most_streams() const { return kStreams; }

Slot CpuDevice::create() {
  const Slot slot{static_cast<float*>(allocate(padded(floats_ * 4)))};
  if (!slot.memory) throw std::bad_alloc();
  clear(slot);
  return slot;
}

void CpuDevice::release(const Slot& slot) noexcept { std::free(slot.memory); }

void CpuDevice::clear(const Slot& slot) { std::memset(slot.memory, 0, size_t(floats_) * 4); }

void CpuDevice::copy(const Slot& from, const Slot& to) { read(from, to.memory); }

void CpuDevice::read(const Slot* const* slots, int64_t count, float* states) const {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(states + i * floats_, slots[i]->memory, size_t(floats_) * 4);
}

void CpuDevice::write(const Slot& slot, const float* states) {
  std::memcpy(slot.memory, states, size_t(floats_) * 4);
}

NotFinite CpuDevice::feed(const Chunk* chunks, const int64_t* order, Slot* const* slots,
                          int64_t count, Cancel* cancel, bool keep) {
  const Lease<CpuWorkspace> workspace(workspaces_);
  return CpuFeed(*this, *workspace, chunks, order, slots, count, cancel).run(keep);
}

}  // namespace tsm
