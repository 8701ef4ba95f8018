#include "engine/overlap.h"

#include <algorithm>

namespace tsm {
namespace {

struct Bytes {
  uintptr_t begin, end;
  template <class T>
  Bytes(const T* data, int64_t count)
      : begin(reinterpret_cast<uintptr_t>(data)),
        end(data ? begin + uintptr_t(count) * sizeof(T) : begin) {}
  bool meets(const Bytes& other) const {  // an empty range meets nothing
    return std::max(begin, other.begin) < std::min(end, other.end);
  }
};

}  // namespace

bool writes_into_input(const Chunk& chunk, int64_t width, int64_t columns) {
  const Bytes inputs[] = {{static_cast<const char*>(chunk.tokens.data()),
                           chunk.steps * int64_t(chunk.tokens.bytes_each())},
                          {chunk.values, chunk.steps * columns},
                          {chunk.dt, chunk.steps}};
  const Bytes outputs[] = {{chunk.logits, (chunk.last_only ? 1 : chunk.steps) * width},
                           {chunk.scores, chunk.steps}};
  for (const Bytes& output : outputs)
    for (const Bytes& input : inputs)
      if (output.meets(input)) return true;
  return false;
}

Overlap find_overlap(const Chunk* chunks, const int64_t* order, int64_t count, int64_t width,
                     OutputSpan* spans) {
  OutputSpan* end = spans;
  uintptr_t last = 0;
  bool in_order = true;  // usually each span follows the previous one: no sorting needed
  const auto add = [&](const float* output, int64_t rows, int64_t columns, int64_t chunk) {
    if (!output || rows == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(output);
    in_order = in_order && begin >= last;
    last = begin + uintptr_t(rows) * uintptr_t(columns) * sizeof(float);
    *end++ = {begin, last, chunk};
  };
  for (int64_t i = 0; i < count; ++i) {
    const Chunk& chunk = chunks[order[i]];
    add(chunk.logits, chunk.last_only ? 1 : chunk.steps, width, order[i]);
    add(chunk.scores, chunk.steps, 1, order[i]);
  }
  if (in_order) return {};
  std::sort(spans, end, [](const OutputSpan& a, const OutputSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.chunk < b.chunk;
  });
  // If any two of the sorted spans overlap, two neighbours do.
  for (const OutputSpan* span = spans; end - span > 1; ++span) {
    if (span[1].begin < span->end)
      return {std::min(span->chunk, span[1].chunk), std::max(span->chunk, span[1].chunk)};
  }
  return {};
}

}  // namespace tsm
