// The element types D that a team multiplies (team_member.cuh): bfloat16, or float as a sum of two
// tf32.
//
// Each type defines how a lane holds its part of a tile of the matrix (16 units, 16 k) and of x (8
// rows, 16 k), and how the two are multiplied on tensor cores. A lane has four consecutive k of two
// neighbouring units, or of one row.
#pragma once
#include <cuda_bf16.h>

#include "cells/math_cuda.cuh"
#include "kernels/cuda/ptx.cuh"

namespace tsm::team {

using bf16 = __nv_bfloat16;

template <class D>
struct OperandOf;

template <>
struct OperandOf<bf16> {
  using Math = FastCuda;  // of the cell
  using Two = uint32_t;   // neighbours
  using Four = uint2;     // consecutive k of a unit or row

  __device__ static Two packed(float a, float b) { return cuda::packed(a, b); }
  __device__ static float2 floats(Two two) {
    return {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
  }
  // Transposes four k of two units, from one pair per k to four k per unit.
  __device__ static void turn(const Two (&k)[4], Four (&unit)[2]) {
    unit[0] = {__byte_perm(k[0], k[1], 0x5410), __byte_perm(k[2], k[3], 0x5410)};
    unit[1] = {__byte_perm(k[0], k[1], 0x7632), __byte_perm(k[2], k[3], 0x7632)};
  }

  // A lane's part of a tile of the matrix is kWords words, 32 apart. A and X are the operands of
  // the multiplication, made from Words and Four.
  static constexpr int kWords = 1;
  using Words = uint4;
  using A = Words;
  using X = Four;
  __device__ static Words words(const Four (&unit)[2]) {
    return {unit[0].x, unit[1].x, unit[0].y, unit[1].y};
  }
  __device__ static void put(uint4* to, const Words& words) { to[0] = words; }
  __device__ static Words get(const uint4* from) { return from[0]; }
  // sum [units, rows] += a x^T.
  __device__ static void multiply(float (&sum)[4], const A& a, const X& x) {
    cuda::mma(sum, a, x.x, x.y);
  }
};

// a = high + low, 11 bits each. a x = high high + high low + low high, with a relative error of
// 2^-21. Tensor cores truncate their sums instead of rounding, so they only sum one block of k.
template <>
struct OperandOf<float> {
  using Math = PreciseCuda;
  using Two = uint2;
  using Four = uint4;

  __device__ static Two packed(float a, float b) {
    return {__float_as_uint(a), __float_as_uint(b)};
  }
  __device__ static float2 floats(Two two) {
    return {__uint_as_float(two.x), __uint_as_float(two.y)};
  }
  __device__ static void turn(const Two (&k)[4], Four (&unit)[2]) {
    unit[0] = {k[0].x, k[1].x, k[2].x, k[3].x};
    unit[1] = {k[0].y, k[1].y, k[2].y, k[3].y};
  }

  struct Parts {
    uint4 high, low;
    Parts() = default;
    __device__ Parts(const uint4& a)
        : high{ptx::tf32(a.x), ptx::tf32(a.y), ptx::tf32(a.z), ptx::tf32(a.w)},
          low{rest(a.x, high.x), rest(a.y, high.y), rest(a.z, high.z), rest(a.w, high.w)} {}
    __device__ static uint32_t rest(uint32_t a, uint32_t high) {
      return ptx::tf32(__float_as_uint(__uint_as_float(a) - __uint_as_float(high)));
    }
  };
  static constexpr int kWords = 2;  // two k per lane each: one instruction takes 8 k
  struct Words {
    uint4 k[2];
  };
  struct A {
    Parts k[2];
    __device__ A(const Words& words) : k{words.k[0], words.k[1]} {}
  };
  using X = Parts;
  __device__ static Words words(const Four (&unit)[2]) {
    return {{{unit[0].x, unit[1].x, unit[0].y, unit[1].y},
             {unit[0].z, unit[1].z, unit[0].w, unit[1].w}}};
  }
  __device__ static void put(uint4* to, const Words& words) {
    to[0] = words.k[0];
    to[32] = words.k[1];
  }
  __device__ static Words get(const uint4* from) { return {{from[0], from[32]}}; }
  __device__ static void multiply(float (&sum)[4], const A& a, const X& x) {
    float large[4] = {}, small[4] = {};
    cuda::mma_tf32(small, a.k[0].low, x.high.x, x.high.y);
    cuda::mma_tf32(large, a.k[0].high, x.high.x, x.high.y);
    cuda::mma_tf32(small, a.k[1].low, x.high.z, x.high.w);
    cuda::mma_tf32(large, a.k[1].high, x.high.z, x.high.w);
    cuda::mma_tf32(small, a.k[0].high, x.low.x, x.low.y);
    cuda::mma_tf32(small, a.k[1].high, x.low.z, x.low.w);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += large[i] + small[i];
  }
};

}  // namespace tsm::team
