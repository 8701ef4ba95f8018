// Loads and stores under a predicate instead of a branch: the compiler does not move instructions
// across branches.
#pragma once
#include <cstdint>

namespace tsm::ptx {

// Makes the compiler keep the value in a register instead of recomputing it.
__device__ inline uint32_t materialized(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ inline bool materialized(bool value) { return materialized(uint32_t(value)) != 0; }
__device__ inline int64_t materialized(int64_t value) {
  asm volatile("" : "+l"(value));
  return value;
}
template <class T>
__device__ inline T* materialized(T* value) {
  asm volatile("" : "+l"(value));
  return value;
}

// For global memory. A value that is not loaded stays unchanged. `bits` of a float are a float's;
// those of any other pointer are a bfloat16's, in the low half.
__device__ inline void load_if(bool on, const float* from, float& value) {
  asm volatile("{\n.reg .pred on;\nsetp.ne.b32 on, %1, 0;\n@on ld.global.f32 %0, [%2];\n}"
               : "+f"(value)
               : "r"(int(on)), "l"(from)
               : "memory");
}
__device__ inline void load_bits_if(bool on, const void* from, uint32_t& bits) {
  asm volatile("{\n.reg .pred on;\nsetp.ne.b32 on, %1, 0;\n@on ld.global.u16 %0, [%2];\n}"
               : "+r"(bits)
               : "r"(int(on)), "l"(from)
               : "memory");
}
__device__ inline void load_bits_if(bool on, const float* from, uint32_t& bits) {
  float value = __uint_as_float(bits);
  load_if(on, from, value);
  bits = __float_as_uint(value);
}
__device__ inline void store_if(bool on, float* to, float value) {
  asm volatile(
      "{\n.reg .pred on;\nsetp.ne.b32 on, %0, 0;\n@on st.global.f32 [%1], %2;\n}" ::"r"(int(on)),
      "l"(to), "f"(value)
      : "memory");
}
__device__ inline void store_bits_if(bool on, void* to, uint32_t bits) {
  asm volatile(
      "{\n.reg .pred on;\nsetp.ne.b32 on, %0, 0;\n@on st.global.b16 [%1], %2;\n}" ::"r"(int(on)),
      "l"(to), "r"(bits)
      : "memory");
}
__device__ inline void store_bits_if(bool on, float* to, uint32_t bits) {
  store_if(on, to, __uint_as_float(bits));
}
// Into L2.
__device__ inline void prefetch_if(bool on, const void* at) {
  asm volatile(
      "{\n.reg .pred on;\nsetp.ne.b32 on, %0, 0;\n@on prefetch.global.L2 [%1];\n}" ::"r"(int(on)),
      "l"(at));
}

// For shared memory.
__device__ inline uint4 load_shared(uint32_t from) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from));
  return value;
}
__device__ inline void store_shared(uint32_t to, const uint4& value) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ inline void load_shared_if(bool on, uint32_t from, uint4& value) {
  asm volatile(
      "{\n.reg .pred on;\nsetp.ne.b32 on, %4, 0;\n@on ld.shared.v4.b32 {%0,%1,%2,%3}, [%5];\n}"
      : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
      : "r"(int(on)), "r"(from)
      : "memory");
}
__device__ inline void store_shared_half_if(bool on, uint32_t to, uint32_t bits) {
  asm volatile(
      "{\n.reg .pred on;\nsetp.ne.b32 on, %0, 0;\n@on st.shared.b16 [%1], %2;\n}" ::"r"(int(on)),
      "r"(to), "r"(bits)
      : "memory");
}
__device__ inline void store_shared_word_if(bool on, uint32_t to, uint32_t bits) {
  asm volatile(
      "{\n.reg .pred on;\nsetp.ne.b32 on, %0, 0;\n@on st.shared.b32 [%1], %2;\n}" ::"r"(int(on)),
      "r"(to), "r"(bits)
      : "memory");
}

}  // namespace tsm::ptx
