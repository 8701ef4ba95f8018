// A math policy with one SIMD register of floats as its value: 4 lanes in the base instruction
// sets, 8 with AVX2, 16 with AVX-512, depending on how the including file is compiled.
//
// A file that is compiled once per instruction set (cpp/cmake/kernels.cmake) gets the name of the
// set as TSM_ISA_NAME, and everything here lives in a namespace of that name: the linker must never
// mix the code of two sets. With TSM_GENERIC only the compiler's vector extensions are used.
//
// exp, log and tanh are polynomials, minimax-fitted for this file; tests/cpp/kernels/test_math.cc
// checks their error bounds in ulp. All propagate NaN.
#pragma once
#include <cstdint>
#include <cstring>

#include "cells/math.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#ifndef TSM_ISA_NAME
#define TSM_ISA_NAME common  // a file that is compiled once
#endif

namespace tsm {
inline namespace TSM_ISA_NAME {

#if defined(__AVX512F__)
constexpr int kFloatLanes = 16;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kFloatLanes = 8;
#else
constexpr int kFloatLanes = 4;
#endif

// Arithmetic operators for a register, so that generated cells can use V like a number.
struct Floats {
  typedef float Native __attribute__((vector_size(4 * kFloatLanes)));
  typedef int32_t Bits __attribute__((vector_size(4 * kFloatLanes)));
  Native v;

  Floats() = default;
  TSM_CELL Floats(Native native) : v(native) {}
  TSM_CELL explicit Floats(float x) : v(x - Native{}) {}  // x in every lane

  friend TSM_CELL Floats operator+(Floats a, Floats b) { return a.v + b.v; }
  friend TSM_CELL Floats operator-(Floats a, Floats b) { return a.v - b.v; }
  friend TSM_CELL Floats operator*(Floats a, Floats b) { return a.v * b.v; }
  friend TSM_CELL Floats operator/(Floats a, Floats b) { return a.v / b.v; }
  friend TSM_CELL Floats operator-(Floats a) { return -a.v; }
  friend TSM_CELL Bits operator<(Floats a, Floats b) { return a.v < b.v; }
  friend TSM_CELL Bits operator>(Floats a, Floats b) { return a.v > b.v; }
};

struct SimdFloat {
  using V = Floats;
  using Bits = Floats::Bits;
  static constexpr int kLanes = kFloatLanes;

  TSM_CELL static V fma(V a, V b, V c) {
#if defined(__AVX512F__)
    return V(Floats::Native(_mm512_fmadd_ps(a.v, b.v, c.v)));
#elif defined(__AVX2__) && defined(__FMA__)
    return V(Floats::Native(_mm256_fmadd_ps(a.v, b.v, c.v)));
#elif defined(__ARM_NEON) && !defined(TSM_GENERIC)
    return V(Floats::Native(vfmaq_f32(c.v, a.v, b.v)));
#else
    return a * b + c;
#endif
  }

  // e^x = 2^n e^r with |r| <= ln2 / 2.
  TSM_CELL static V exp(V x) {
    const Small s = small(clip(x, V(-104.0f), V(89.0f)));  // e^89 is infinite
    const V y = s.growth + V(1.0f);
#if defined(__AVX512F__)
    return V(Floats::Native(_mm512_maskz_scalef_ps(kAll, y.v, s.n.v)));
#else
    const Bits n = bits(s.shifted) - bits(V(kMagic)), half = n >> 1;
    return y * power_of_two(half) * power_of_two(n - half);  // 2^n may be subnormal or overflow
#endif
  }

  // log(2^k (1 + t)) with 1 + t in [sqrt(1/2), sqrt(2)).
  TSM_CELL static V log(V x) {
    const Split s = split(x);
    const V t = s.t, k = s.k;
    V q = fma(V(-7.86647981142e-2f), t, V(0.128918620481f));
    q = fma(q, t, V(-0.13130381923f));
    q = fma(q, t, V(0.14179937927f));
    q = fma(q, t, V(-0.166243538949f));
    q = fma(q, t, V(0.200023321042f));
    q = fma(q, t, V(-0.250008134131f));
    q = fma(q, t, V(0.333333162989f));
    const V square = t * t;
    V y = fma(square * t, q, k * V(-2.12194440e-4f));
    y = fma(square, V(-0.5f), y) + t;
    return logarithm_of(x, fma(k, V(0.693359375f), y));
  }

  // (e^2|x| - 1) / (e^2|x| + 1), where e^y - 1 = 2^n (e^r - 1) + (2^n - 1) loses nothing near 0.
  TSM_CELL static V tanh(V x) {
    const Small s = small(at_most(V(24.0f), abs(x) + abs(x)));  // the result is 1 from 18 on
    const V power = power_of_two(s), less = fma(power, s.growth, power - V(1.0f));
    return with_sign_of(x, ratio(less, less + V(2.0f)));
  }

  // 1 / (1 + e^-x)
  TSM_CELL static V sigmoid(V x) {
    const Small s = small(-clip(x, V(-87.0f), V(87.0f)));  // the smallest result is 1e-38
    const V power = power_of_two(s);
    return reciprocal(fma(power, s.growth, power) + V(1.0f));
  }
  TSM_CELL static V abs(V x) { return from_bits(bits(x) & 0x7fffffff); }
  TSM_CELL static V clip(V x, V low, V high) { return at_most(high, at_least(low, x)); }
  TSM_CELL static V sinh(V x) {
    const V e = exp(x);
    return V(0.5f) * (e - V(1.0f) / e);
  }
  TSM_CELL static V cosh(V x) {
    const V e = exp(x);
    return V(0.5f) * (e + V(1.0f) / e);
  }

  // Loads the first `count` lanes from memory of any alignment; the others are 0.
  TSM_CELL static V load(const float* from, int count) {
#if defined(__AVX512F__)
    if (count != kLanes) return V(Floats::Native(_mm512_maskz_loadu_ps(lanes(count), from)));
#endif
    V x(0.0f);
    if (count == kLanes)
      std::memcpy(&x, from, sizeof(x));
    else
      std::memcpy(&x, from, sizeof(float) * size_t(count));
    return x;
  }
  TSM_CELL static void store(V x, float* to, int count) {
#if defined(__AVX512F__)
    if (count != kLanes) return _mm512_mask_storeu_ps(to, lanes(count), x.v);
#endif
    if (count == kLanes)
      std::memcpy(to, &x, sizeof(x));
    else
      std::memcpy(to, &x, sizeof(float) * size_t(count));
  }

  TSM_CELL static Bits bits(V x) { return Bits(x.v); }
  TSM_CELL static V from_bits(Bits b) { return V(Floats::Native(b)); }
  TSM_CELL static V select(Bits mask, V yes, V no) {
    return V(Floats::Native(mask ? yes.v : no.v));
  }
  TSM_CELL static V with_sign_of(V sign, V x) {
    return from_bits((bits(x) & 0x7fffffff) | (bits(sign) & int32_t(0x80000000)));
  }

 private:
#if defined(__AVX512F__)
  static constexpr __mmask16 kAll = 0xffff;
  TSM_CELL static __mmask16 lanes(int count) { return __mmask16((1u << count) - 1); }
#endif
  // The minimum and the maximum of `limit` and x; a NaN in x is returned.
  TSM_CELL static V at_most(V limit, V x) {
#if defined(__AVX512F__)
    return V(Floats::Native(_mm512_maskz_min_ps(kAll, limit.v, x.v)));
#elif defined(__AVX2__) && defined(__FMA__)
    return V(Floats::Native(_mm256_min_ps(limit.v, x.v)));
#elif defined(__ARM_NEON) && !defined(TSM_GENERIC)
    return V(Floats::Native(vminq_f32(limit.v, x.v)));
#else
    return select(x > limit, limit, x);
#endif
  }
  TSM_CELL static V at_least(V limit, V x) {
#if defined(__AVX512F__)
    return V(Floats::Native(_mm512_maskz_max_ps(kAll, limit.v, x.v)));
#elif defined(__AVX2__) && defined(__FMA__)
    return V(Floats::Native(_mm256_max_ps(limit.v, x.v)));
#elif defined(__ARM_NEON) && !defined(TSM_GENERIC)
    return V(Floats::Native(vmaxq_f32(limit.v, x.v)));
#else
    return select(x < limit, limit, x);
#endif
  }

  // e^x of a moderate x: 2^n (1 + growth). NaN makes growth NaN.
  struct Small {
    V growth, n;
    V shifted;  // its low bits are n
  };
  static constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  TSM_CELL static Small small(V x) {
    const V magic(kMagic);
    const V shifted = fma(x, V(1.44269504f), magic);
    const V n = shifted - magic;
    V r = fma(n, V(-0.693359375f), x);  // ln2 in two parts; products with the first are exact
    r = fma(n, V(2.12194440e-4f), r);
    V p = fma(V(1.39515660012e-3f), r, V(8.36953075188e-3f));
    p = fma(p, r, V(4.16661903822e-2f));
    p = fma(p, r, V(0.166665136324f));
    p = fma(p, r, V(0.500000009946f));
    return {fma(r * r, p, r), n, shifted};
  }
  // 2^n, if that is not subnormal.
  TSM_CELL static V power_of_two(const Small& s) {
    return from_bits((bits(s.shifted) << 23) + 0x3f800000);
  }

  // x = 2^k (1 + t). The result is arbitrary unless x is positive and finite.
  struct Split {
    V k, t;
  };
  TSM_CELL static Split split(V x) {
#if defined(__AVX512F__)
    const V exponent(Floats::Native(_mm512_maskz_getexp_ps(kAll, x.v * V(1.41421356f).v)));
    const V k = at_most(V(128.0f), exponent);  // the product may be infinite
    return {k, V(Floats::Native(_mm512_maskz_scalef_ps(kAll, x.v, -k.v))) - V(1.0f)};
#else
    const Bits tiny = x < V(1.17549435e-38f);
    const V scaled = select(tiny, x * V(8388608.0f), x);  // subnormal: 2^23 x
    const Bits i = bits(scaled);
    const Bits n = (i - 0x3f3504f3) >> 23;
    const V k = V(__builtin_convertvector(n, Floats::Native)) - select(tiny, V(23.0f), V(0.0f));
    return {k, from_bits(i - (n << 23)) - V(1.0f)};
#endif
  }
  // Returns y, which is log(x), corrected where x is 0, negative, infinite or NaN.
  TSM_CELL static V logarithm_of(V x, V y) {
#if defined(__AVX512F__)
    // Four bits per class of x, lowest first: NaN (two), 0, 1, -infinity, infinity, negative,
    // positive. The codes: 0 returns y, 2 returns x as a quiet NaN, 3 a new NaN, 4 and 5 the
    // infinities.
    return V(
        Floats::Native(_mm512_maskz_fixupimm_ps(kAll, y.v, x.v, _mm512_set1_epi32(0x03530422), 0)));
#else
    const V infinity(__builtin_inff());
    y = select(x < infinity, y, x);
    const V other = select(x.v == V(0.0f).v, -infinity, V(__builtin_nanf("")));  // and NaN
    return select(x > V(0.0f), y, other);
#endif
  }

  // a / d and 1 / d for d between 1 and 2^126 (or NaN), within 0.6 ulp. A subnormal quotient is
  // correct only if d is a power of two, as in tanh. With AVX-512 this avoids a division, which for
  // 16 lanes takes as long as some 30 other operations.
  TSM_CELL static V ratio(V a, V d) {
#if defined(__AVX512F__)
    const V back = nearly_reciprocal(d), q = a * back;
    return fma(rest(a, d, q), back, q);
#else
    return a / d;
#endif
  }
  TSM_CELL static V reciprocal(V d) {
#if defined(__AVX512F__)
    const V back = nearly_reciprocal(d);
    return fma(rest(V(1.0f), d, back), back, back);
#else
    return V(1.0f) / d;
#endif
  }
#if defined(__AVX512F__)
  TSM_CELL static V nearly_reciprocal(V d) {
    const V back(Floats::Native(_mm512_maskz_rcp14_ps(kAll, d.v)));
    return fma(rest(V(1.0f), d, back), back, back);
  }
  // c - a b, rounded once
  TSM_CELL static V rest(V c, V a, V b) {
    return V(Floats::Native(_mm512_fnmadd_ps(a.v, b.v, c.v)));
  }
#endif

  TSM_CELL static V power_of_two(Bits n) { return from_bits((n + 127) << 23); }
};

}  // namespace TSM_ISA_NAME
}  // namespace tsm
