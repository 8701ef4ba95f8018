// The floor of a stream's step: the time to read its weights once, and nothing else.
#pragma once
#include <cstdint>

#include "core/aligned.h"

namespace tsm::bench {

// Weights of `input_bytes` (W: read once per chunk) and `recurrent_bytes` (U: once per step), in
// memory of the same kind as a model's.
class ReadFloor {
 public:
  ReadFloor(int64_t input_bytes, int64_t recurrent_bytes, int64_t steps);

  // Seconds for so many chunks; the sums are kept so that no compiler leaves the reading out.
  double run(int64_t chunks);

 private:
  Aligned<uint8_t> input_, recurrent_;
  int64_t steps_;
  volatile uint64_t sum_ = 0;
};

}  // namespace tsm::bench
