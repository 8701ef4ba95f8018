// Finds outputs of one call that share memory: the results of one stream would overwrite those of
// another, or input that is still to be read.
#pragma once
#include <algorithm>
#include <cstdint>

#include "engine/device/chunk.h"

namespace tsm {

// A range of memory.
struct Bytes {
  uintptr_t begin, end;
  template <class T>
  Bytes(const T* data, int64_t count)
      : begin(reinterpret_cast<uintptr_t>(data)), end(begin + uintptr_t(count) * sizeof(T)) {}
  bool meets(const Bytes& other) const {  // an empty range meets nothing
    return std::max(begin, other.begin) < std::min(end, other.end);
  }
};

// use(bytes) for each output of the chunk. `width`: of a row of logits.
template <class F>
void for_each_output(const Chunk& chunk, int64_t width, const F& use) {
  const int64_t rows = chunk.last_only ? 1 : chunk.steps;
  if (chunk.logits && rows > 0) use(Bytes(chunk.logits, rows * width));
  if (chunk.scores && chunk.steps > 0) use(Bytes(chunk.scores, chunk.steps));
}

// Whether each output begins after the end of the one before it, as outputs usually do: then no two
// overlap.
class OutputOrder {
 public:
  explicit OutputOrder(int64_t width) : width_(width) {}
  void add(const Chunk& chunk) {
    for_each_output(chunk, width_, [this](const Bytes& output) {
      in_order_ &= output.begin >= last_;
      last_ = output.end;
    });
  }
  explicit operator bool() const { return in_order_; }

 private:
  const int64_t width_;
  uintptr_t last_ = 0;
  bool in_order_ = true;
};

// The memory range of an output of a chunk.
struct OutputSpan {
  uintptr_t begin, end;
  int64_t chunk;
};

// Two chunks whose outputs overlap, or one chunk twice if its logits and scores do.
struct Overlap {
  int64_t first = -1, second = -1;  // -1: none
};

// Among chunks[order[i]], i < count. `width`: of a row of logits. `spans` [2 * count] is scratch
// memory.
Overlap find_overlap(const Chunk* chunks, const int64_t* order, int64_t count, int64_t width,
                     OutputSpan* spans);

// Whether an output of the chunk overlaps its input. `columns`: of a row of values.
inline bool writes_into_input(const Chunk& chunk, int64_t width, int64_t columns) {
  bool found = false;
  for_each_output(chunk, width, [&](const Bytes& output) {
    found |= chunk.tokens && output.meets({static_cast<const char*>(chunk.tokens.data()),
                                           chunk.steps * int64_t(chunk.tokens.bytes_each())});
    found |= chunk.values && output.meets({chunk.values, chunk.steps * columns});
    found |= chunk.dt && output.meets({chunk.dt, chunk.steps});
  });
  return found;
}

}  // namespace tsm
