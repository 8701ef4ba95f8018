// Memory that a call works in. A model keeps as many as calls ever ran at once, each grown to what
// it was asked for, so that after the first calls nothing is allocated.
#pragma once
#include <cstdint>

#include "core/aligned.h"
#include "engine/device/device.h"
#include "engine/device/overlap.h"

namespace tsm {

// An array that only grows; growing loses what it held.
template <class T>
class Buffer {
 public:
  void reserve(int64_t count) {
    if (memory_.size() < count) memory_ = Aligned<T>(count);
  }
  T* data() const { return memory_.data(); }

 private:
  Aligned<T> memory_;
};

// A row of logits that is wanted: of the encoded row `row`, written to `out`; or, with a token, its
// log-probability alone.
struct Wanted {
  int64_t row;
  int64_t token;  // -1: logits
  float* out;
};

// Where a stream stood before a call that generates.
struct Started {
  bool held = false;
  int64_t position = 0;
  double time = 0;
};

struct Workspace {
  // That were computed in it: they say which way to read the weights (multiply_sweep).
  int64_t slices = 0, steps = 0;
  // Of the whole call.
  Buffer<int64_t> order;
  Buffer<float> backup;
  std::vector<NotFinite> broken;
  Buffer<Slot*> slots;
  Buffer<OutputSpan> spans;
  // Of a slice (engine/cpu/layer.h).
  Buffer<float*> memory;
  Buffer<int64_t> active, first, tokens;
  Buffer<float> dt, rows, z, scratch;
  Buffer<uint8_t> x, y[2], encoded;  // y: of one layer and of the one before it
  // Of the head.
  Buffer<Wanted> wanted;
  Buffer<uint8_t> gathered;
  Buffer<float> logits;
  // Of sampling, and of a call that generates (engine/generate.h).
  Buffer<double> weights;
  Buffer<int64_t> candidates, drawn;
  std::vector<Chunk> chunks;
  std::vector<Started> started;
};

}  // namespace tsm
