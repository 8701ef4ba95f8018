// Tensor core instructions and asynchronous copies for compute capability 8.0 and later, and
// conversion of 8-bit weights to bfloat16.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace tsm::cuda {

// c [16,8] += a [16,16] b [16,8]: bfloat16 in, float out.
__device__ inline void mma(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
// c [16,8] += a [16,8] b [8,8]: tf32 in, float out.
__device__ inline void mma_tf32(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ inline uint32_t shared_address(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}
// Loads four 8x8 matrices of bfloat16; lane i supplies the address of row i % 8 of matrix i / 8.
__device__ inline uint4 load_matrices(uint32_t address) {
  uint4 r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "r"(address));
  return r;
}

__device__ inline void copy_async(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// 8-bit weights are stored as unsigned numbers, with an offset of 128. Converts bytes 2 I and 2 I +
// 1 of `bytes` to two bfloat16, exactly: 2^23 + byte as a float, minus 2^23 + 128.
template <int I>
__device__ inline uint32_t widened(uint32_t bytes) {
  constexpr float kBase = 8388608.0f + 128.0f;
  const float low = __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7540 + 2 * I)) - kBase;
  const float high = __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7541 + 2 * I)) - kBase;
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}

__device__ inline uint32_t packed(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(both);
}

}  // namespace tsm::cuda
