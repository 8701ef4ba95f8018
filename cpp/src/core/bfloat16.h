// bfloat16 as stored in memory; arithmetic is in float.
#pragma once
#include <cstdint>
#include <cstring>

namespace tsm {

struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  explicit bfloat16(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    // Round to nearest even; a NaN keeps its sign and becomes quiet instead of rounding to
    // infinity.
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = nan ? uint16_t((u >> 16) | 0x40u) : uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    const uint32_t u = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &u, 4);
    return x;
  }
};

}  // namespace tsm
