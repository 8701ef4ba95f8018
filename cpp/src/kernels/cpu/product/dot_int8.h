// Sums of products of 8-bit integers with the best available instruction: it adds kGroup products
// to each 32-bit sum of a register, one sum per output. All sums are exact, so every instruction
// set gives the same result.
#pragma once
#include "kernels/cpu/product/matrix_source.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

using Ints = Floats::Bits;

// Four bytes of activations, to be broadcast to every lane.
TSM_CELL int32_t four_bytes(const char* x) {
  int32_t group;
  std::memcpy(&group, x, 4);
  return group;
}

#if defined(__x86_64__)
// Keeps gcc from delaying the additions, which would need registers for all products.
TSM_CELL Ints settled(Ints sum) {
  __asm__("" : "+v"(sum));
  return sum;
}
#endif

#if defined(__AVX512VNNI__)
// vpdpbusd needs unsigned activations, so x + 128 is used; the sums start at -128 * (sum of the
// weights).
struct Dot {
  using X = uint8_t;
  using Weights = __m512i;
  using Factors = const char*;
  static constexpr int kGroup = 4, kOffset = 128, kUnroll = 4;
  TSM_CELL static Factors factors(const char* x) { return x; }
  TSM_CELL static Weights load(const int8_t* w) { return _mm512_loadu_si512(w); }
  template <int I>
  TSM_CELL static Ints madd(Ints sum, Weights w, Factors x) {
    return Ints(_mm512_dpbusd_epi32(__m512i(sum), _mm512_set1_epi32(four_bytes(x + 4 * I)), w));
  }
};
#elif defined(__AVX512F__) || defined(__AVX2__)
// Widened to 16 bits: the 8-bit instruction saturates.
struct Dot {
  using X = int16_t;
  using Factors = const char*;
  static constexpr int kGroup = 2, kOffset = 0, kUnroll = 4;
  TSM_CELL static Factors factors(const char* x) { return x; }
#if defined(__AVX512F__)
  using Weights = __m512i;
  TSM_CELL static Weights load(const int8_t* w) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
  }
  template <int I>
  TSM_CELL static Ints madd(Ints sum, Weights w, Factors x) {
    return settled(sum + Ints(_mm512_madd_epi16(w, _mm512_set1_epi32(four_bytes(x + 4 * I)))));
  }
#else
  using Weights = __m256i;
  TSM_CELL static Weights load(const int8_t* w) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
  }
  template <int I>
  TSM_CELL static Ints madd(Ints sum, Weights w, Factors x) {
    return settled(sum + Ints(_mm256_madd_epi16(w, _mm256_set1_epi32(four_bytes(x + 4 * I)))));
  }
#endif
};
#elif defined(__SSE2__)
struct Dot {
  using X = int16_t;
  using Weights = __m128i;
  using Factors = const char*;
  static constexpr int kGroup = 2, kOffset = 0, kUnroll = 4;
  TSM_CELL static Factors factors(const char* x) { return x; }
  TSM_CELL static Weights load(const int8_t* w) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(w));
    return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
  }
  template <int I>
  TSM_CELL static Ints madd(Ints sum, Weights w, Factors x) {
    return settled(sum + Ints(_mm_madd_epi16(w, _mm_set1_epi32(four_bytes(x + 4 * I)))));
  }
};
#elif defined(__ARM_FEATURE_DOTPROD)
struct Dot {
  using X = int8_t;
  using Weights = int8x16_t;
  using Factors = int8x16_t;
  static constexpr int kGroup = 4, kOffset = 0, kUnroll = 4;
  TSM_CELL static Factors factors(const char* x) {
    return vld1q_s8(reinterpret_cast<const int8_t*>(x));
  }
  TSM_CELL static Weights load(const int8_t* w) { return vld1q_s8(w); }
  template <int I>
  TSM_CELL static Ints madd(Ints sum, Weights w, Factors x) {
    return Ints(vdotq_laneq_s32(int32x4_t(sum), w, x, I));
  }
};
#elif defined(__ARM_NEON) && !defined(TSM_GENERIC)
struct Dot {
  using X = int8_t;
  using Weights = int8x8_t;
  using Factors = int8x8_t;
  static constexpr int kGroup = 2, kOffset = 0, kUnroll = 4;
  TSM_CELL static Factors factors(const char* x) {
    return vld1_s8(reinterpret_cast<const int8_t*>(x));
  }
  TSM_CELL static Weights load(const int8_t* w) { return vld1_s8(w); }
  template <int I>
  TSM_CELL static Ints madd(Ints sum, Weights w, Factors x) {
    const int8x8_t pair = vreinterpret_s8_s16(vdup_lane_s16(vreinterpret_s16_s8(x), I));
    return Ints(vpadalq_s16(int32x4_t(sum), vmull_s8(w, pair)));
  }
};
#else
struct Dot {
  using X = int8_t;
  using Weights = const int8_t*;
  using Factors = const char*;
  static constexpr int kGroup = 4, kOffset = 0, kUnroll = 1;
  TSM_CELL static Factors factors(const char* x) { return x; }
  TSM_CELL static Weights load(const int8_t* w) { return w; }
  template <int I>
  TSM_CELL static Ints madd(Ints sum, Weights w, Factors x) {
    for (int lane = 0; lane < kFloatLanes; ++lane)
      for (int k = 0; k < 4; ++k) sum[lane] += int(w[4 * lane + k]) * int8_t(x[4 * I + k]);
    return sum;
  }
};
#endif

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
