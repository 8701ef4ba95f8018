// Shared by the kernels of the recurrence: sizes and constants of a cell, loads and stores of two
// numbers, and a backward step.
#pragma once
#include "kernels/cuda/cell_step.cuh"
#include "kernels/cuda/train/operands.cuh"

namespace tsm::team {

using cuda::number;

template <class Cell>
struct Sizes {
  static constexpr int G = Cell::kGates, S = Cell::kStates, K = Cell::kVectors, Q = Cell::kPrepared;
  static constexpr int kK = K > 0 ? K : 1, kQ = Q > 0 ? Q : 1;
  static constexpr int kC = Cell::kConstants > 0 ? Cell::kConstants : 1;
  __host__ __device__ static constexpr bool reads(int state) {
    return (Cell::kReads >> state) & 1u;
  }
  // The number of states before this one that the cell reads.
  __host__ __device__ static constexpr int place(int state) {
    int before = 0;
#pragma unroll
    for (int i = 0; i < S; ++i) before += i < state && reads(i);
    return before;
  }
};

template <class Cell>
struct Constants {
  float value[Sizes<Cell>::kC];

  template <class V>
  __device__ void get(V (&k)[Sizes<Cell>::kC]) const {
#pragma unroll
    for (int i = 0; i < Cell::kConstants; ++i) k[i] = V(value[i]);
  }
};

// Loads two numbers without conversion.
template <class D>
__device__ inline typename OperandOf<D>::Two load_two(const D* p) {
  return __ldg(reinterpret_cast<const typename OperandOf<D>::Two*>(p));
}

__device__ inline float2 load(const float* p) { return __ldg(reinterpret_cast<const float2*>(p)); }
__device__ inline void store(float* p, float a, float b) { *reinterpret_cast<float2*>(p) = {a, b}; }

// Loads for arrays that the kernel also writes: they do not use the read-only cache.
template <class D>
__device__ inline typename OperandOf<D>::Two load_own(const D* p) {
  return *reinterpret_cast<const typename OperandOf<D>::Two*>(p);
}
template <class D>
__device__ inline void store_two(D* p, float a, float b) {
  *reinterpret_cast<typename OperandOf<D>::Two*>(p) = OperandOf<D>::packed(a, b);
}

// A backward step of one unit.
template <class Cell, class M>
struct Gradients {
  using N = Sizes<Cell>;
  using V = typename M::V;
  float z[N::G], s[N::S], q[N::kQ];

  Gradients() = default;
  __device__ Gradients(const V* z_of, const V* before, const V* prepared, const V* k, V dt,
                       const V* after) {
    V active[N::G], dz[N::G], ds[N::S], dq[N::kQ];
    Cell::template activate<M>(z_of, active);
    Cell::template backward<M>(active, before, prepared, k, dt, after, dz, ds, dq);
#pragma unroll
    for (int i = 0; i < N::G; ++i) z[i] = number(dz[i]);
#pragma unroll
    for (int i = 0; i < N::S; ++i) s[i] = number(ds[i]);
#pragma unroll
    for (int i = 0; i < N::Q; ++i) q[i] = number(dq[i]);
  }
  __device__ void add(const Gradients& other, float times) {
#pragma unroll
    for (int i = 0; i < N::G; ++i) z[i] = fmaf(times, other.z[i], z[i]);
#pragma unroll
    for (int i = 0; i < N::S; ++i) s[i] = fmaf(times, other.s[i], s[i]);
#pragma unroll
    for (int i = 0; i < N::Q; ++i) q[i] = fmaf(times, other.q[i], q[i]);
  }
};

}  // namespace tsm::team
