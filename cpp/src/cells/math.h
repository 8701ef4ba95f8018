// The math policies for the generated cells, which are templates over a policy.
//
// A policy M has a value type V (one lane here; a SIMD vector elsewhere), the basic primitives exp,
// log, sigmoid and tanh, and the functions that the other primitives (cells/generated/primitives.h)
// are built from: abs, clip, sinh, cosh. All of them propagate NaN.
#pragma once
#include <cmath>

#if defined(__CUDACC__)
#define TSM_CELL __host__ __device__ __forceinline__
#else
#define TSM_CELL inline __attribute__((always_inline))
#endif

namespace tsm {

// One float or double at a time, on the host or on a GPU.
template <class T>
struct Scalar {
  using V = T;
  static constexpr int kLanes = 1;

  TSM_CELL static V fma(V a, V b, V c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__)
    return std::fma(a, b, c);
#else
    return a * b + c;  // std::fma would be a library call here
#endif
  }
  TSM_CELL static V exp(V x) { return std::exp(x); }
  TSM_CELL static V log(V x) { return std::log(x); }
  TSM_CELL static V tanh(V x) { return std::tanh(x); }
  TSM_CELL static V sigmoid(V x) {
    const V e = std::exp(-std::fabs(x));  // never overflows
    return (x < V(0) ? e : V(1)) / (V(1) + e);
  }
  TSM_CELL static V abs(V x) { return std::fabs(x); }
  TSM_CELL static V clip(V x, V low, V high) { return x < low ? low : x > high ? high : x; }
  TSM_CELL static V sinh(V x) { return std::sinh(x); }
  TSM_CELL static V cosh(V x) { return std::cosh(x); }

  TSM_CELL static V load(const T* from, int count) { return count ? *from : V(0); }
  TSM_CELL static void store(V x, T* to, int count) {
    if (count) *to = x;
  }
};

}  // namespace tsm
