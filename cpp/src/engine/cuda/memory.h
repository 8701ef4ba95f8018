// Memory of a CUDA device, and pinned memory of the host.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "kernels/cuda/check.h"

namespace tsm::cuda {

struct OnDevice {
  static cudaError_t get(void** to, size_t bytes) { return cudaMalloc(to, bytes); }
  static void free(void* memory) { cudaFree(memory); }
};
struct OnHost {  // pinned: copies from and to it are asynchronous
  static cudaError_t get(void** to, size_t bytes) { return cudaMallocHost(to, bytes); }
  static void free(void* memory) { cudaFreeHost(memory); }
};

// An array that never shrinks. Growing discards its contents; nothing may be using it then.
template <class T, class Where>
class Array {
 public:
  Array() = default;
  explicit Array(int64_t count) { reserve(count); }
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Array() {
    if (data_) Where::free(data_);
  }

  bool reserve(int64_t count) {  // whether it has grown
    if (count <= size_) return false;
    if (data_) Where::free(data_);
    data_ = nullptr;
    size_ = 0;
    void* memory = nullptr;
    check(Where::get(&memory, size_t(count) * sizeof(T)), "memory");
    data_ = static_cast<T*>(memory);
    size_ = count;
    return true;
  }
  T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * int64_t(sizeof(T)); }

 private:
  void swap(Array& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T* data_ = nullptr;
  int64_t size_ = 0;
};

template <class T>
using DeviceArray = Array<T, OnDevice>;
template <class T>
using HostArray = Array<T, OnHost>;

// Copies data from ordinary memory to the device at load time.
template <class T>
DeviceArray<T> uploaded(const T* from, int64_t count) {
  DeviceArray<T> array(count);
  if (count > 0)
    check(cudaMemcpy(array.data(), from, size_t(count) * sizeof(T), cudaMemcpyHostToDevice),
          "a copy to the device");
  return array;
}

}  // namespace tsm::cuda
