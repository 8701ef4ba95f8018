// Makes allocations of host and CUDA device memory fail on request. Included by one file of a test
// program, it replaces operator new; the program is linked with --wrap for the other functions
// (tests.cmake), so that only calls by tsm are intercepted, not those by the driver. Anything that
// CUDA has created and not released counts as a block.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include "failing.h"

#pragma GCC visibility push(default)  // libstdc++ calls these
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* const memory = failing::now() ? nullptr : std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  return failing::counted(memory);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory) failing::live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
#pragma GCC visibility pop

extern "C" {

void* __real_aligned_alloc(size_t alignment, size_t bytes);
void* __wrap_aligned_alloc(size_t alignment, size_t bytes) {
  return failing::now() ? nullptr : __real_aligned_alloc(alignment, bytes);
}
int __real_posix_memalign(void** memory, size_t alignment, size_t bytes);
int __wrap_posix_memalign(void** memory, size_t alignment, size_t bytes) {
  return failing::now() ? ENOMEM : __real_posix_memalign(memory, alignment, bytes);
}

// MAKE returns a TYPE in its first argument, and RELEASE frees it.
#define TSM_WRAP(MAKE, RELEASE, TYPE, PARAMETERS, ...)     \
  cudaError_t __real_##MAKE PARAMETERS;                    \
  cudaError_t __wrap_##MAKE PARAMETERS {                   \
    if (failing::now()) return cudaErrorMemoryAllocation;  \
    const cudaError_t status = __real_##MAKE(__VA_ARGS__); \
    if (status == cudaSuccess) failing::live.fetch_add(1); \
    return status;                                         \
  }                                                        \
  cudaError_t __real_##RELEASE(TYPE made);                 \
  cudaError_t __wrap_##RELEASE(TYPE made) {                \
    if (made) failing::live.fetch_sub(1);                  \
    return __real_##RELEASE(made);                         \
  }
TSM_WRAP(cudaMalloc, cudaFree, void*, (void** to, size_t bytes), to, bytes)
TSM_WRAP(cudaMallocHost, cudaFreeHost, void*, (void** to, size_t bytes), to, bytes)
TSM_WRAP(cudaStreamCreateWithFlags, cudaStreamDestroy, cudaStream_t,
         (cudaStream_t * to, unsigned flags), to, flags)
TSM_WRAP(cudaGraphInstantiate, cudaGraphExecDestroy, cudaGraphExec_t,
         (cudaGraphExec_t * to, cudaGraph_t graph, unsigned long long flags), to, graph, flags)
#undef TSM_WRAP

}  // extern "C"
