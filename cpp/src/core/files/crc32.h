// CRC-32 (the polynomial of zlib and PNG). It detects damage, not tampering.
#pragma once
#include <cstdint>

namespace tsm {

// before: the CRC of the preceding bytes.
uint32_t crc32(const void* data, int64_t bytes, uint32_t before = 0);

}  // namespace tsm
