// Tests by their bits whether numbers are finite, one register at a time; used for the inputs of
// every call. core/finite.h has a plain loop for short arrays and one-time checks.
#pragma once
#include "cells/simd.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

bool all_finite_lanes(const float* x, int64_t n) {
  using Bits = Floats::Bits;
  constexpr int L = SimdFloat::kLanes;
  constexpr int32_t kExponent = 0x7f800000, kOne = 0x00800000;
  Bits found = {};  // negative in lanes that saw an exponent of all ones
  const auto look = [&](const Floats& numbers) __attribute__((always_inline)) {
    Bits bits;
    std::memcpy(&bits, &numbers.v, sizeof(bits));
    found |= (~bits & kExponent) - kOne;
  };
  int64_t i = 0;
  for (; i + L <= n; i += L) look(SimdFloat::load(x + i, L));
  if (i < n) look(SimdFloat::load(x + i, int(n - i)));
  int32_t any = 0;
  for (int lane = 0; lane < L; ++lane) any |= found[lane];
  return any >= 0;
}

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
