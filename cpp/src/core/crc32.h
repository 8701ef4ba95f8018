// CRC-32 (the polynomial of zlib and PNG): notices damaged bytes, not malice.
#pragma once
#include <cstdint>

namespace tsm {

uint32_t crc32(const void* data, int64_t bytes);

}  // namespace tsm
