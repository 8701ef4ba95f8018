// The math policies for GPU training, in float arithmetic. Numbers below 1e-38 are flushed to 0.
// All propagate NaN.
#pragma once
#include "cells/math.h"

namespace tsm {

// For bfloat16: the hardware's 2^x, log2 and reciprocal. Absolute errors are about 2e-7, far below
// the bfloat16 rounding of arguments around 1. But tanh of an argument below 1e-4 has only a few
// correct digits.
struct FastCuda {
  // A float whose division multiplies by the reciprocal.
  struct V {
    float x;
    V() = default;
    __device__ __forceinline__ explicit V(float x) : x(x) {}
    __device__ __forceinline__ friend V operator+(V a, V b) { return V(a.x + b.x); }
    __device__ __forceinline__ friend V operator-(V a, V b) { return V(a.x - b.x); }
    __device__ __forceinline__ friend V operator*(V a, V b) { return V(a.x * b.x); }
    __device__ __forceinline__ friend V operator/(V a, V b) { return a * reciprocal(b); }
    __device__ __forceinline__ V operator-() const { return V(-x); }
  };
  static constexpr int kLanes = 1;
  static constexpr float kLog2E = 1.4426950408889634f;

  __device__ __forceinline__ static V power_of_two(V x) {
    V y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y.x) : "f"(x.x));
    return y;
  }
  __device__ __forceinline__ static V reciprocal(V x) {
    V y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y.x) : "f"(x.x));
    return y;
  }

  __device__ __forceinline__ static V fma(V a, V b, V c) { return V(::fmaf(a.x, b.x, c.x)); }
  __device__ __forceinline__ static V exp(V x) { return power_of_two(V(kLog2E * x.x)); }
  __device__ __forceinline__ static V log(V x) {
    V y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y.x) : "f"(x.x));
    return V(y.x * (1.0f / kLog2E));
  }
  // 1 - 2 / (1 + e^2x): exact for large |x|, and within 2e-7 near 0.
  __device__ __forceinline__ static V tanh(V x) {
    const V e = power_of_two(V(2.0f * kLog2E * x.x));
    return fma(V(-2.0f), reciprocal(e + V(1.0f)), V(1.0f));
  }
  __device__ __forceinline__ static V sigmoid(V x) {
    return reciprocal(power_of_two(V(-kLog2E * x.x)) + V(1.0f));
  }
  __device__ __forceinline__ static V abs(V x) { return V(fabsf(x.x)); }
  __device__ __forceinline__ static V clip(V x, V low, V high) {
    return x.x < low.x ? low : x.x > high.x ? high : x;
  }
  __device__ __forceinline__ static V sinh(V x) {
    const V e = exp(x);
    return V(0.5f) * (e - reciprocal(e));
  }
  __device__ __forceinline__ static V cosh(V x) {
    const V e = exp(x);
    return V(0.5f) * (e + reciprocal(e));
  }
};

// For float32: CUDA's exp, log, tanh, sinh and cosh, with errors of a few units in the last place.
// A division is still a product with the reciprocal, because a true one branches.
struct PreciseCuda : FastCuda {
  __device__ __forceinline__ static V exp(V x) { return V(::expf(x.x)); }
  __device__ __forceinline__ static V log(V x) { return V(::logf(x.x)); }
  __device__ __forceinline__ static V tanh(V x) { return V(::tanhf(x.x)); }
  __device__ __forceinline__ static V sigmoid(V x) { return reciprocal(exp(-x) + V(1.0f)); }
  __device__ __forceinline__ static V sinh(V x) { return V(::sinhf(x.x)); }
  __device__ __forceinline__ static V cosh(V x) { return V(::coshf(x.x)); }
};

}  // namespace tsm
