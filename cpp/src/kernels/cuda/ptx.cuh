// Instructions without a CUDA C++ intrinsic, in addition to those of tensor_cores.cuh: barriers,
// counters between blocks, and rounding to tf32, for compute capability 8.0 and later; clusters and
// bulk copies, for 9.0 (kHopper).
#pragma once
#include <cstdint>

#include "kernels/cuda/tensor_cores.cuh"

namespace tsm::ptx {

using cuda::shared_address;

// Whether this code is compiled for compute capability 9.0 (Hopper).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ / 10 == 90
constexpr bool kHopper = true;
#else
constexpr bool kHopper = false;
#endif

// Barriers for part of the block: `count` threads arrive, and those that call sync also wait.
__device__ inline void sync(int barrier, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void arrive(int barrier, int count) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(count) : "memory");
}

// A counter in global memory that blocks add to and wait for.
__device__ inline void add_release(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ inline uint32_t peek(const uint32_t* counter) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
__device__ inline void acquire() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ inline uint32_t peek_acquire(const uint32_t* counter) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

// For words that one block writes while others look whether they have been written.
__device__ inline void store_relaxed(void* to, uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ inline uint4 peek_four(const void* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

// For numbers that are not needed again soon: their lines are the first to leave the caches.
__device__ inline uint32_t load_once(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ inline uint2 load_once(const uint2* from) {
  uint2 v;
  asm volatile("ld.global.cs.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from) : "memory");
  return v;
}
__device__ inline uint4 load_once(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

// Stores to global memory by one instruction: the compiler splits some of these.
__device__ inline void store_whole(uint32_t* to, uint32_t v) { *to = v; }
__device__ inline void store_whole(uint2* to, const uint2& v) {
  asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
}
__device__ inline void store_whole(uint4* to, const uint4& v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

// Lets the next kernel of the stream start, if it was launched to overlap with this one; and, in
// that kernel, waits until this one has ended. Both have no effect otherwise.
__device__ inline void start_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Orders ordinary accesses and those of the asynchronous copy engine.
__device__ inline void proxy_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }

__device__ inline void barrier_init(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
__device__ inline void barrier_init_fence() {
  if constexpr (kHopper) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Arrives at a barrier in another member of the cluster (in_member), after reads whose values this
// thread has used. It does not make its writes visible there; with the scope of a cluster it would,
// and wait for them.
__device__ inline void barrier_arrive_in_member(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at a barrier, as the only thread to do so, and makes it wait for `bytes` bytes of copies
// as well.
__device__ inline void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Arrives at a barrier when all copies that this thread has started (copy_async) have landed.
__device__ inline void barrier_arrive_after_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Also makes visible what other blocks of the cluster stored before they signalled.
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  if constexpr (kHopper)
    asm volatile(
        "{\n.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred done;\n"
        "again: mbarrier.test_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// Waits without making visible what other blocks of the cluster stored: for bulk copies into this
// block. Unlike the other, it need not invalidate the first-level cache. Only for 9.0.
__device__ inline void barrier_wait_in_block(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// How long the L2 cache keeps what a copy reads: as usual, or only until another line needs the
// place.
__device__ inline uint64_t kept_in_cache() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline uint64_t not_kept_in_cache() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void copy_from_global(void* to, const void* from, uint32_t bytes,
                                        uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], "
      "%2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
__device__ inline void copy_from_global(void* to, const void* from, uint32_t bytes,
                                        uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
// Maps an address in this block's shared memory to the same location in member `rank` of the
// cluster.
__device__ inline uint32_t in_member(const void* p, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(p)), "r"(rank));
  return there;
}
// Stores 4 or 8 bytes into a member's shared memory and counts them on a barrier there.
__device__ inline void send(uint32_t to, uint32_t value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(value), "r"(barrier)
      : "memory");
}
__device__ inline void send(uint32_t to, uint2 value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1,%2}, [%3];" ::
          "r"(to),
      "r"(value.x), "r"(value.y), "r"(barrier)
      : "memory");
}
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// Rounds a float to the 11 significant bits of tf32; returns its bits.
__device__ inline uint32_t tf32(uint32_t value) {
  uint32_t rounded;
  if constexpr (kHopper)
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(value)));
  else  // differs only for numbers halfway between two others
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(value)));
  return rounded;
}

}  // namespace tsm::ptx
