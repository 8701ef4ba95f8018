// A part of a sequence, and the destinations of its outputs.
#pragma once
#include <cstdint>

#include "engine/device/tokens.h"

namespace tsm {

class Stream;  // belongs to the engine; devices do not read it

// The input of one stream. Outputs are logits [steps, output_size], or with last_only [output_size]
// of the last step (of the current state if steps = 0). Null: not wanted.
struct Chunk {
  Stream* stream = nullptr;
  Tokens tokens;                  // [steps], or
  const float* values = nullptr;  // [steps, input_size]
  int64_t steps = 0;
  const float* dt = nullptr;  // [steps], or null: 1
  float* logits = nullptr;
  bool last_only = false;
  // [steps] log p(token i | all before it), as in `score`; only for tokens of a kLanguageModel.
  float* scores = nullptr;
};

constexpr float kLongestDt = 1e30f;

// Whether dt is a valid time step; `shortest` is the model's shortest one. dt may have been rounded
// to a float.
inline bool is_time_step(float dt, double shortest) {
  return dt > 0 && dt <= kLongestDt && dt >= shortest * (1 - 1e-6);
}

// dt as it was checked: an invalid value that another thread has written since then counts as 1.
inline float dt_of(const Chunk& chunk, int64_t step, double shortest) {
  if (!chunk.dt) return 1;
  const float dt = *static_cast<const volatile float*>(chunk.dt + step);
  return is_time_step(dt, shortest) ? dt : 1;
}

}  // namespace tsm
