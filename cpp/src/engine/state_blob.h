// A stream's state as bytes, to be stored or moved. Little-endian, without padding:
//
//   0   8  "tsmstate"
//   8   4  version, 1
//   12  4  number of floats N
//   16  8  fingerprint of the model
//   24  8  position (int64, 0 to 2^62)
//   32  8  time (double, finite, 0 or more)
//   40  4N the states: layers in order, states in order, each of its width
//   ..  4  CRC-32 of all bytes before
#pragma once
#include <cstdint>
#include <vector>

namespace tsm {

struct StateHeader {
  uint64_t fingerprint;
  int64_t position;
  double time;
};

constexpr int64_t state_blob_bytes(int64_t floats) { return 44 + 4 * floats; }

// The place of one state in the memory of a stream, in floats.
struct StatePart {
  int64_t at, width;
};
using StateParts = std::vector<StatePart>;  // in the order of the blob

int64_t floats_of(const StateParts& parts);

// Allocates nothing.
void write_state(const StateHeader& header, const float* states, const StateParts& parts,
                 uint8_t* blob);

// Throws tsm::Error (kBadState), and writes nothing to `states`, unless the blob belongs to this
// model and is intact and finite.
StateHeader read_state(const uint8_t* blob, int64_t bytes, uint64_t fingerprint,
                       const StateParts& parts, float* states);

}  // namespace tsm
