// Which CUDA device the calls of this thread go to.
#pragma once
#include "kernels/cuda/check.h"

namespace tsm::cuda {

// Makes a device the current one for a while; then the caller's is again. The device, with its
// primary context: a caller with its own context (cuCtxCreate) must make it current again.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : device_(device) {
    check(cudaGetDevice(&before_), "no device");
    // Also where the number is the same: the current context may be another one.
    check(cudaSetDevice(device), "choice of a device");
  }
  ~DeviceGuard() {
    if (before_ != device_) cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  const int device_;
  int before_ = 0;
};

}  // namespace tsm::cuda
