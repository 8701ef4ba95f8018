// A part of a sequence, and where its outputs go.
#pragma once
#include <cstdint>

#include "engine/device/tokens.h"

namespace tsm {

class Stream;  // belongs to the engine; devices do not read it

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

constexpr float kLongestDt = 1e30f;

// Whether dt is a time step of a model whose shortest one is given, which may have been rounded to
// a float.
inline bool is_time_step(float dt, double shortest) {
  return dt > 0 && dt <= kLongestDt && dt >= shortest * (1 - 1e-6);
}

// dt as it was checked: what another thread has written there since then counts as 1.
inline float dt_of(const Chunk& chunk, int64_t step, double shortest) {
  if (!chunk.dt) return 1;
  const float dt = *static_cast<const volatile float*>(chunk.dt + step);
  return is_time_step(dt, shortest) ? dt : 1;
}

}  // namespace tsm
