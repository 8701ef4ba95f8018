// Turns failures of the CUDA runtime into exceptions.
#pragma once
#include <cuda_runtime.h>

#include <new>
#include <stdexcept>
#include <string>

namespace tsm::cuda {

// A failing device is not the caller's mistake: std::runtime_error, not tsm::Error.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error for the next call
  if (status == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw std::runtime_error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

}  // namespace tsm::cuda
