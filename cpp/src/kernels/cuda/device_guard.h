// Selects the CUDA device for calls of this thread.
#pragma once
#include "kernels/cuda/check.h"

namespace tsm::cuda {

// Makes a device current for the scope and then restores the caller's. It uses the device's primary
// context: a caller with its own context (cuCtxCreate) must make that current again.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : device_(device) {
    check(cudaGetDevice(&before_), "no device");
    // Needed even if the device is the same: the current context may be another one.
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
