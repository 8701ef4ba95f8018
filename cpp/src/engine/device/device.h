// Where a model runs; holds its weights and the states of its streams. engine/cpu and engine/cuda
// implement it.
#pragma once
#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "core/cancel.h"
#include "engine/device/chunk.h"
#include "engine/file/config.h"

namespace tsm {

// A stream's states on its device.
struct Slot {
  float* memory = nullptr;
  int current = 0;  // the current copy, if the device keeps several
};

// A state that a call would have made infinite or NaN.
struct NotFinite {
  int64_t layer = -1;  // -1: none
  int state = -1;
  int64_t chunk = -1;  // whose
};

// Calls are synchronous. Several threads may call at once, but only one per slot.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;  // the instruction set, or "sm_90"
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t slot_bytes() const = 0;    // of one stream
  virtual int64_t most_streams() const = 0;  // per call that are worth batching
  // Whether the cell of that layer is not compiled in and is interpreted from the file's program.
  virtual bool interprets(int64_t) const { return false; }

  virtual Slot create() = 0;  // states of 0
  virtual void release(const Slot& slot) noexcept = 0;
  virtual void clear(const Slot& slot) = 0;
  virtual void copy(const Slot& from, const Slot& to) = 0;
  void read(const Slot& slot, float* states) const {
    const Slot* const one = &slot;
    read(&one, 1, states);
  }
  virtual void read(const Slot* const* slots, int64_t count, float* states) const = 0;
  virtual void write(const Slot& slot, const float* states) = 0;
  // The states themselves if they are in host memory; null if `read` and `write` have to copy them.
  virtual float* on_host(const Slot&) const { return nullptr; }

  // Feeds chunks[order[i]], longest first, to slots[i]; the chunks are already checked. Reports
  // that a state is not finite, but not which stream it belongs to. In that case, if it throws
  // (kCancelled, for example) or if `keep` is false, the slots are unchanged.
  virtual NotFinite feed(const Chunk* chunks, const int64_t* order, Slot* const* slots,
                         int64_t count, Cancel* cancel, bool keep) = 0;
};

// The offset of each state in a stream's states: layers in order, each state at a multiple of 64
// bytes.
struct StateLayout {
  explicit StateLayout(const Config& config) {
    for (const LayerConfig& layer : config.layers) {
      at.emplace_back();
      for (const StateInfo& state : layer.states) {
        at.back().push_back(floats);
        floats += padded(state.width * 4) / 4;
      }
    }
  }
  std::vector<std::vector<int64_t>> at;  // [layer][state], in floats
  int64_t floats = 0;
};

}  // namespace tsm
