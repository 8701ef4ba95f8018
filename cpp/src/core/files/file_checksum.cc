#include "core/files/file_checksum.h"

#include <cstdio>
#include <cstring>

#include "core/files/crc32.h"

namespace tsm {

std::string stated_checksum(const uint8_t* file, int64_t bytes) {
  constexpr int64_t end = kChecksumAt + kChecksumDigits;
  if (bytes <= end || file[end] != '"' ||
      std::memcmp(file + 8, kChecksumPrefix, sizeof kChecksumPrefix - 1) != 0)
    return {};
  return std::string(reinterpret_cast<const char*>(file) + kChecksumAt, size_t(kChecksumDigits));
}

std::string computed_checksum(const uint8_t* file, int64_t bytes) {
  constexpr int64_t end = kChecksumAt + kChecksumDigits;
  uint32_t crc = crc32(file, kChecksumAt);
  crc = crc32("00000000", kChecksumDigits, crc);
  crc = crc32(file + end, bytes - end, crc);
  char digits[kChecksumDigits + 1];
  std::snprintf(digits, sizeof digits, "%08x", crc);
  return digits;
}

}  // namespace tsm
