// The checksum of a .tsm file, from format 2 on: CRC-32 of all its bytes, from the first to the
// last, with zeros for the eight digits that state it. They stand at one place of every file, so
// that no flipped bit hides them: the header begins with `{"__metadata__":{"checksum":"DIGITS"`.
#pragma once
#include <cstdint>
#include <string>

namespace tsm {

constexpr char kChecksumPrefix[] = "{\"__metadata__\":{\"checksum\":\"";
constexpr int64_t kChecksumDigits = 8;
constexpr int64_t kChecksumAt = 8 + int64_t(sizeof kChecksumPrefix) - 1;  // from the file's start

// What the file says of itself: eight characters; empty where it does not begin as above.
std::string stated_checksum(const uint8_t* file, int64_t bytes);
// What it is: eight digits of 0-9 and a-f. `bytes` is at least kChecksumAt + kChecksumDigits.
std::string computed_checksum(const uint8_t* file, int64_t bytes);

}  // namespace tsm
