#include "engine/overlap.h"

#include <algorithm>

namespace tsm {

Overlap find_overlap(const Chunk* chunks, int64_t count, int64_t width, OutputSpan* spans) {
  OutputSpan* end = spans;
  uintptr_t last = 0;
  bool in_order = true;  // each behind the one before it, as mostly: nothing to sort
  const auto add = [&](const float* output, int64_t rows, int64_t columns, int64_t chunk) {
    if (!output || rows == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(output);
    in_order = in_order && begin >= last;
    last = begin + uintptr_t(rows) * uintptr_t(columns) * sizeof(float);
    *end++ = {begin, last, chunk};
  };
  for (int64_t i = 0; i < count; ++i) {
    add(chunks[i].logits, chunks[i].last_only ? 1 : chunks[i].steps, width, i);
    add(chunks[i].scores, chunks[i].steps, 1, i);
  }
  if (in_order) return {};
  std::sort(spans, end, [](const OutputSpan& a, const OutputSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.chunk < b.chunk;
  });
  // Where any two overlap, two neighbours do.
  for (const OutputSpan* span = spans; end - span > 1; ++span) {
    if (span[1].begin < span->end)
      return {std::min(span->chunk, span[1].chunk), std::max(span->chunk, span[1].chunk)};
  }
  return {};
}

}  // namespace tsm
