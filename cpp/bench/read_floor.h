// A lower bound on the time of a stream's step: the time to read its weights once.
#pragma once
#include <cstdint>

#include "core/aligned.h"

namespace tsm::bench {

// Stands in for the weights of a model: `input_bytes` are read once per chunk (W),
// `recurrent_bytes` once per step (U). The memory is allocated like a model's.
class ReadFloor {
 public:
  ReadFloor(int64_t input_bytes, int64_t recurrent_bytes, int64_t steps);

  // Seconds for `chunks` chunks. The sums are kept so that the compiler cannot drop the reads.
  double run(int64_t chunks);

 private:
  Aligned<uint8_t> input_, recurrent_;
  int64_t steps_;
  volatile uint64_t sum_ = 0;
};

}  // namespace tsm::bench
