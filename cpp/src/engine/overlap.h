// Outputs of one call that share memory: the results of one stream would overwrite another's.
#pragma once
#include <cstdint>

#include "engine/model.h"

namespace tsm {

// Where an output of a chunk goes.
struct OutputSpan {
  uintptr_t begin, end;
  int64_t chunk;
};

// Two chunks whose outputs overlap, or one whose logits and scores do.
struct Overlap {
  int64_t first = -1, second = -1;  // -1: none
};

// `width`: of a row of logits. `spans`: memory to work in, [2 * count].
Overlap find_overlap(const Chunk* chunks, int64_t count, int64_t width, OutputSpan* spans);

}  // namespace tsm
