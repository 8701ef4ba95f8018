// A piece of a sequence, and where its outputs go.
#pragma once
#include <cstdint>

#include "engine/device/tokens.h"

namespace tsm {

class Stream;

// What one stream is fed. Outputs are logits [steps, output_size], or [output_size] of the last
// step with last_only (of the current state where steps = 0); null: not wanted.
struct Chunk {
  Stream* stream = nullptr;
  Tokens tokens;                  // [steps], or
  const float* values = nullptr;  // [steps, input_size]
  int64_t steps = 0;
  const float* dt = nullptr;  // [steps], or null: 1
  float* logits = nullptr;
  bool last_only = false;
  // [steps] log p(token i | everything before), as `score`; tokens of a kLanguageModel only.
  float* scores = nullptr;
};

}  // namespace tsm
