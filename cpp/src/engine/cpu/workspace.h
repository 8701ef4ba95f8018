// Memory that a call works in on the CPU. A model keeps as many as calls ever ran at once. They
// only grow, so nothing is allocated after the first calls.
#pragma once
#include <cstdint>

#include "core/growing.h"

namespace tsm {

// A row of logits that is wanted: of the encoded row `row`, written to `out`; or, with a token, its
// log-probability alone.
struct Wanted {
  int64_t row;
  int64_t token;  // -1: logits
  float* out;
};

struct CpuWorkspace {
  // That were computed in it: they say which way to read the weights (multiply_sweep).
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
