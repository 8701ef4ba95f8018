// A math policy for GPU training: float through the hardware's 2^x, log2 and reciprocal.
//
// Errors are some 1e-7 absolute on values of size 1, far below the bfloat16 rounding of what
// surrounds it. All propagate NaN.
#pragma once
#include "cells/math.h"

namespace tsm {

struct FastCuda {
  using V = float;
  static constexpr int kLanes = 1;

  __device__ __forceinline__ static V fma(V a, V b, V c) { return ::fmaf(a, b, c); }
  __device__ __forceinline__ static V exp(V x) { return __expf(x); }
  __device__ __forceinline__ static V log(V x) { return __logf(x); }
  __device__ __forceinline__ static V tanh(V x) {
    const V size = fabsf(x), u = x * x;
    const V far = 1.0f - __fdividef(2.0f, __expf(size + size) + 1.0f);
    const V near = fmaf(x * u, fmaf(u, 0.13333333f, -0.33333333f), x);
    return size < 0.15f ? near : copysignf(far, x);
  }
  __device__ __forceinline__ static V sigmoid(V x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
  __device__ __forceinline__ static V fast_sigmoid(V x) {
    const V e = __expf(clamped(x));
    return sigmoid(0.5f * (e - __fdividef(1.0f, e)));
  }
  __device__ __forceinline__ static V fast_sigmoid_slope(V x) {
    const V e = __expf(clamped(x)), back = __fdividef(1.0f, e);
    const V s = __expf(-fabsf(0.5f * (e - back)));
    return __fdividef(s, (1.0f + s) * (1.0f + s)) * (0.5f * (e + back));
  }
  __device__ __forceinline__ static V softsign_gate(V x) {
    return fmaf(0.5f, __fdividef(x, 2.0f + fabsf(x)), 0.5f);
  }
  __device__ __forceinline__ static V softsign_gate_slope(V x) {
    const V d = 2.0f + fabsf(x);
    return __fdividef(1.0f, d * d);
  }

 private:
  __device__ __forceinline__ static V clamped(V x) {
    const V limit = V(kFastLimit);
    return x < -limit ? -limit : x > limit ? limit : x;
  }
};

}  // namespace tsm
