// log(sum of exp) in a fixed order: first within each lane, then lane by lane.
#pragma once
#include "cells/simd.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

float log_sum_exp(const float* x, int64_t n) {
  using M = SimdFloat;
  using V = Floats;
  constexpr int L = M::kLanes;
  float most = x[0];
  bool nan = false;
  {
    V largest(x[0]);
    V::Bits unordered = {};
    int64_t i = 0;
    for (; i + L <= n; i += L) {
      const V v = M::load(x + i, L);
      largest = M::select(v > largest, v, largest);
      unordered |= v.v != v.v;
    }
    for (; i < n; ++i) {
      most = x[i] > most ? x[i] : most;
      nan |= x[i] != x[i];
    }
    for (int lane = 0; lane < L; ++lane) {
      most = largest.v[lane] > most ? largest.v[lane] : most;
      nan |= unordered[lane] != 0;
    }
  }
  if (nan || x[0] != x[0]) return __builtin_nanf("");
  if (!(most < __builtin_inff() && most > -__builtin_inff())) return most;
  V sums(0.0f);
  int64_t i = 0;
  for (; i + L <= n; i += L) sums = sums + M::exp(M::load(x + i, L) - V(most));
  if (i < n) {
    const int count = int(n - i);
    float rest[L];
    M::store(M::exp(M::load(x + i, count) - V(most)), rest, L);
    for (int lane = count; lane < L; ++lane) rest[lane] = 0;
    sums = sums + M::load(rest, L);
  }
  float sum = 0;
  for (int lane = 0; lane < L; ++lane) sum += sums.v[lane];
  return most + M::log(V(sum)).v[0];
}

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
