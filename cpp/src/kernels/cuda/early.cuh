// Kernels that are launched while the kernel before them runs (programmatic dependent launch,
// compute capability 9.0 and later).
#pragma once
#include <cstdint>

#include "kernels/cuda/check.h"
#include "kernels/cuda/ptx.cuh"

namespace tsm::cuda {

// Whether the code that the current device runs has griddepcontrol.wait: it may be PTX for an older
// device.
inline bool waits(const void* kernel) {
  thread_local int known = -1;
  thread_local bool found = false;
  int device = 0;
  check(cudaGetDevice(&device), "no device");
  if (device != known) {
    cudaFuncAttributes code{};
    check(cudaFuncGetAttributes(&code, kernel), "the code of a step");
    found = code.ptxVersion >= 90;
    known = device;
  }
  return found;
}

// early: the kernel may start before the one before it has ended, and calls ptx::wait_for_previous.
template <class... Args>
void launch(void (*kernel)(Args...), dim3 blocks, unsigned threads, size_t shared_bytes,
            uintptr_t stream, bool early, const Args&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = cudaStream_t(stream);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = early && waits(reinterpret_cast<const void*>(kernel)) ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, args...), "launch of a step");
}

}  // namespace tsm::cuda
