// The checksum of a .tsm file, from format 2 on: the CRC-32 of all its bytes, with zeros in place
// of the eight checksum digits. The digits are at a fixed position, so that a flipped bit cannot
// make the reader miss them: the header begins with `{"__metadata__":{"checksum":"DIGITS"`.
#pragma once
#include <cstdint>
#include <string>

namespace tsm {

constexpr char kChecksumPrefix[] = "{\"__metadata__\":{\"checksum\":\"";
constexpr int64_t kChecksumDigits = 8;
constexpr int64_t kChecksumAt = 8 + int64_t(sizeof kChecksumPrefix) - 1;  // from the file's start

// The checksum stated in the file, eight characters; empty if the file does not begin as above.
std::string stated_checksum(const uint8_t* file, int64_t bytes);
// The checksum of the file: eight digits of 0-9 and a-f. `bytes` must be at least kChecksumAt +
// kChecksumDigits.
std::string computed_checksum(const uint8_t* file, int64_t bytes);

}  // namespace tsm
