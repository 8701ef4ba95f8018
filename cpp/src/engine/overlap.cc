#include "engine/overlap.h"

#include <algorithm>

namespace tsm {

Overlap find_overlap(const Chunk* chunks, const int64_t* order, int64_t count, int64_t width,
                     OutputSpan* spans) {
  OutputSpan* end = spans;
  for (int64_t i = 0; i < count; ++i)
    for_each_output(chunks[order[i]], width,
                    [&](const Bytes& output) { *end++ = {output.begin, output.end, order[i]}; });
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
