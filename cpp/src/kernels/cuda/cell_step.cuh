// A cell's step on floats, for any value type of the math policy.
#pragma once
#include "cells/math_cuda.cuh"

namespace tsm::cuda {

__device__ inline float number(float x) { return x; }
__device__ inline float number(FastCuda::V x) { return x.x; }

template <class M, int N>
struct PolicyValues {
  typename M::V value[N > 0 ? N : 1];  // C++ has no arrays of size 0
  __device__ explicit PolicyValues(const float* from) {
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] = typename M::V(from[i]);
  }
};

// z [G], states s [S], prepared vectors q [Q], constants k; out [S].
template <class Cell, class M>
__device__ inline void step_floats(const float* z, const float* s, const float* q, const float* k,
                                   float dt, float* out) {
  using V = typename M::V;
  PolicyValues<M, Cell::kGates> gates(z);
  const PolicyValues<M, Cell::kStates> states(s);
  const PolicyValues<M, Cell::kPrepared> vectors(q);
  const PolicyValues<M, Cell::kConstants> constants(k);
  V next[Cell::kStates];
  Cell::template activate<M>(gates.value, gates.value);
  Cell::template forward<M>(gates.value, states.value, vectors.value, constants.value, V(dt), next);
#pragma unroll
  for (int i = 0; i < Cell::kStates; ++i) out[i] = number(next[i]);
}

}  // namespace tsm::cuda
