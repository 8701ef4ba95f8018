// Where a model computes: its weights there, and the states of its streams. engine/cpu and
// engine/cuda are two of a kind.
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
  int current = 0;  // which of several copies is the present one, where the device has several
};

// A state that a call would have made infinite or NaN.
struct NotFinite {
  int64_t layer = -1;  // -1: none
  int state = -1;
  int64_t chunk = -1;  // whose
};

// Calls return when they are done. All may be made by several threads at once, on a slot by one.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;  // the instruction set, or "sm_90"
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t slot_bytes() const = 0;    // of one stream
  virtual int64_t most_streams() const = 0;  // that are worth computing together
  // Whether the cell of that layer is not compiled in, and runs from the file's program.
  virtual bool interprets(int64_t) const { return false; }

  virtual Slot create() = 0;  // states of 0
  virtual void release(const Slot& slot) noexcept = 0;
  virtual void clear(const Slot& slot) = 0;
  virtual void copy(const Slot& from, const Slot& to) = 0;
  virtual void read(const Slot& slot, float* states) const = 0;
  virtual void write(const Slot& slot, const float* states) = 0;
  // The states themselves where the host has them; null: `read` and `write` copy them.
  virtual float* on_host(const Slot&) const { return nullptr; }

  // Feeds chunks[order[i]], longest first, to slots[i]; all is checked. It does not say whose
  // state is not finite. Where one is, where it throws (kCancelled, say) and where `keep` is false,
  // the slots are as they were.
  virtual NotFinite feed(const Chunk* chunks, const int64_t* order, Slot* const* slots,
                         int64_t count, Cancel* cancel, bool keep) = 0;
};

// Where each state lies in a stream's states: layers in order, each at a multiple of 64 bytes.
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
