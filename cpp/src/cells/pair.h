// A math policy with two registers of M as its value. A cell is a dependency chain longer than the
// out-of-order window of a processor. Two independent chains fill each other's stalls.
#pragma once
#include "cells/math.h"
#include "cells/simd.h"

namespace tsm {
inline namespace TSM_ISA_NAME {

template <class M>
struct Pair {
  using One = typename M::V;
  static constexpr int kLanes = 2 * M::kLanes;

  struct V {
    One a, b;
    V() = default;
    TSM_CELL V(One a, One b) : a(a), b(b) {}
    TSM_CELL explicit V(float x) : a(x), b(x) {}
    friend TSM_CELL V operator+(V x, V y) { return {x.a + y.a, x.b + y.b}; }
    friend TSM_CELL V operator-(V x, V y) { return {x.a - y.a, x.b - y.b}; }
    friend TSM_CELL V operator*(V x, V y) { return {x.a * y.a, x.b * y.b}; }
    friend TSM_CELL V operator/(V x, V y) { return {x.a / y.a, x.b / y.b}; }
    friend TSM_CELL V operator-(V x) { return {-x.a, -x.b}; }
  };

  // Applies each function of M to both registers.
#define TSM_PAIRED(name)                       \
  template <class... X>                        \
  TSM_CELL static V name(X... x) {             \
    return {M::name(x.a...), M::name(x.b...)}; \
  }
  TSM_PAIRED(fma)
  TSM_PAIRED(exp)
  TSM_PAIRED(log)
  TSM_PAIRED(tanh)
  TSM_PAIRED(sigmoid)
  TSM_PAIRED(abs)
  TSM_PAIRED(clip)
  TSM_PAIRED(sinh)
  TSM_PAIRED(cosh)
#undef TSM_PAIRED

  // All lanes: `count` is kLanes.
  TSM_CELL static V load(const float* from, int) {
    return {M::load(from, M::kLanes), M::load(from + M::kLanes, M::kLanes)};
  }
  TSM_CELL static void store(V x, float* to, int) {
    M::store(x.a, to, M::kLanes);
    M::store(x.b, to + M::kLanes, M::kLanes);
  }
};

// How many units a loop processes at a time: enough dependency chains to hide latency, if there are
// registers for them.
template <class M>
struct Wider {
#if defined(__AVX512F__) || (defined(__ARM_NEON) && !defined(TSM_GENERIC))
  using Policy = Pair<Pair<M>>;
#else
  using Policy = Pair<M>;
#endif
};
template <>
struct Wider<Scalar<double>> {
  using Policy = Scalar<double>;
};

}  // namespace TSM_ISA_NAME
}  // namespace tsm
