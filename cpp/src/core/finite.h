// Tests whether numbers are finite. The test looks at their bits, so that it works with any
// compiler flags.
#pragma once
#include <cstdint>
#include <cstring>

namespace tsm {

// `count` floats at any address.
inline bool floats_finite(const void* x, int64_t count) {
  uint32_t bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t u;
    std::memcpy(&u, static_cast<const char*>(x) + 4 * i, 4);
    bad |= uint32_t((u & 0x7f800000u) == 0x7f800000u);
  }
  return bad == 0;
}

inline bool all_finite(const float* x, int64_t count) { return floats_finite(x, count); }

// bfloat16, as its bits.
inline bool all_finite(const uint16_t* x, int64_t count) {
  unsigned bad = 0;
  for (int64_t i = 0; i < count; ++i) bad |= unsigned((x[i] & 0x7f80u) == 0x7f80u);
  return bad == 0;
}

}  // namespace tsm
