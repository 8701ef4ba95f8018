// Finds outputs of one call that share memory: the results of one stream would overwrite those of
// another, or input that is still to be read.
#pragma once
#include <cstdint>

#include "engine/device/chunk.h"

namespace tsm {

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
bool writes_into_input(const Chunk& chunk, int64_t width, int64_t columns);

}  // namespace tsm
