// Where a model computes when that is not the CPU: its weights there, and the states of its
// streams.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned.h"
#include "core/cancel.h"
#include "engine/device/chunk.h"
#include "engine/file/config.h"

namespace tsm {

// A stream's states on the device, twice: a call reads the current side and writes the other, which
// becomes the current one when the call has gone well. So a call that fails changes nothing.
struct Slot {
  float* memory = nullptr;  // [2, state floats]
  int current = 0;
};

// A state that a call would have made something else than a number.
struct NotFinite {
  int64_t layer = -1;  // -1: none
  int state = -1;
  int64_t chunk = -1;  // whose
};

// Calls return when they are done. All may be made by several threads at once, on a slot by one.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;  // "sm_90"
  virtual int64_t weight_bytes() const = 0;

  virtual Slot create() = 0;  // states of 0
  virtual void release(const Slot& slot) noexcept = 0;
  virtual void clear(const Slot& slot) = 0;
  virtual void copy(const Slot& from, const Slot& to) = 0;
  virtual void read(const Slot& slot, float* states) const = 0;
  virtual void write(const Slot& slot, const float* states) = 0;

  // Feeds chunks[order[i]], longest first, to slots[i]; all is checked. The new states are on the
  // other side of the slots. It does not tell whose state is not finite. kCancelled: the slots are
  // as they were.
  virtual NotFinite feed(const Chunk* chunks, const int64_t* order, Slot* const* slots,
                         int64_t count, Cancel* cancel) = 0;
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

// The model of `file` on the first CUDA device. tsm::Error where there is none, where this build
// has no CUDA, or where a cell is not among those compiled for it.
std::unique_ptr<Device> make_cuda_device(const ModelFile& file, const StateLayout& layout,
                                         Weights weights);

}  // namespace tsm
