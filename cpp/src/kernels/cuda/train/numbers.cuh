// Float and bfloat16 in global memory.
#pragma once
#include <cuda_bf16.h>

namespace tsm::cuda {

// N numbers that are read or written at once.
template <class D, int N>
struct alignas(sizeof(D) * N) Several {
  D at[N];
};

__device__ inline float as_float(float x) { return x; }
__device__ inline float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void assign(float& to, float x) { to = x; }
__device__ inline void assign(float& to, __nv_bfloat16 x) { to = as_float(x); }
__device__ inline void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }
__device__ inline void assign(__nv_bfloat16& to, __nv_bfloat16 x) { to = x; }

}  // namespace tsm::cuda
