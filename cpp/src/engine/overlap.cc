#include "engine/overlap.h"

#include <algorithm>

namespace tsm {

Overlap find_overlap(const Chunk* chunks, const int64_t* order, int64_t count, int64_t width,
                     OutputSpan* spans) {
  const auto for_each = [&](const auto& use) {  // of the outputs
    for (int64_t i = 0; i < count; ++i) {
      const Chunk& chunk = chunks[order[i]];
      const int64_t rows = chunk.last_only ? 1 : chunk.steps;
      if (chunk.logits && rows > 0) use(Bytes(chunk.logits, rows * width), order[i]);
      if (chunk.scores && chunk.steps > 0) use(Bytes(chunk.scores, chunk.steps), order[i]);
    }
  };
  uintptr_t last = 0;
  bool in_order = true;  // usually each output follows the previous one
  for_each([&](const Bytes& output, int64_t) {
    in_order = in_order && output.begin >= last;
    last = output.end;
  });
  if (in_order) return {};
  OutputSpan* end = spans;
  for_each([&](const Bytes& output, int64_t chunk) { *end++ = {output.begin, output.end, chunk}; });
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
