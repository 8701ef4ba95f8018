// Scratch memory of a call on the CPU. A model keeps one per concurrent call. They never shrink, so
// nothing is allocated after the first calls.
#pragma once
#include <cstdint>

#include "core/growing.h"

namespace tsm {

// A requested row of logits: computed from the encoded row `row` and written to `out`. With a
// token, only its log-probability is written.
struct Wanted {
  int64_t row;
  int64_t token;  // -1: logits
  float* out;
};

struct CpuWorkspace {
  // Slices and steps computed so far; their parity gives the direction in which weights are read
  // (multiply_sweep).
  int64_t slices = 0, steps = 0;
  Growing<float> backup;  // of all streams' states
  // Of a slice (engine/cpu/layer.h).
  Growing<float*> memory;
  Growing<int64_t> active, first, tokens;
  Growing<float> dt, rows, z, scratch;
  Growing<uint8_t> x, y[2], encoded;  // y: of one layer and of the one before it
  // Of the head.
  Growing<Wanted> wanted;
  Growing<uint8_t> gathered;
  Growing<float> logits;
};

}  // namespace tsm
