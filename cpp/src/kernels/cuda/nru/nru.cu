#include <cuda_bf16.h>

#include <algorithm>
#include <optional>

#include "kernels/cuda/early.cuh"
#include "kernels/cuda/nru/row.h"

namespace tsm {
namespace {

using bf16 = __nv_bfloat16;
constexpr int kThreads = 256;
constexpr unsigned kAll = 0xffffffffu;

// Groups of N threads.
template <int N>
struct Lanes {
  static constexpr int lanes = N;
  const int group = int(threadIdx.x) / N, groups = kThreads / N, lane = int(threadIdx.x) % N;
  const unsigned mask = N == 32 ? kAll : ((1u << (N % 32)) - 1) << (int(threadIdx.x) % 32 / N * N);

  __device__ float sum(float x) const {
#pragma unroll
    for (int d = N / 2; d > 0; d /= 2) x += __shfl_xor_sync(mask, x, d);
    return x;
  }
  __device__ float most(float x) const {
#pragma unroll
    for (int d = N / 2; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(mask, x, d));
    return x;
  }
};

struct Block {
  static constexpr int count = kThreads;
  const int rank = int(threadIdx.x);
  float* const parts;  // shared, one per warp

  __device__ void sync() const { __syncthreads(); }
  __device__ void wait() const { ptx::wait_for_previous(); }
  __device__ float sum(float x) const {
    const Lanes<32> warp;
    x = warp.sum(x);
    if (warp.lane == 0) parts[warp.group] = x;
    __syncthreads();
    float all = 0;
#pragma unroll
    for (int i = 0; i < kThreads / 32; ++i) all += parts[i];
    __syncthreads();
    return all;
  }
  template <int N>
  __device__ Lanes<N> lanes() const {
    return {};
  }
};

template <class Args>
__global__ void __launch_bounds__(kThreads)
    hidden_kernel(const __grid_constant__ Args args, const int64_t t) {
  __shared__ float parts[kThreads / 32];
  nru::hidden(Block{int(threadIdx.x), parts}, args, blockIdx.x, t);
}

template <class Args>
__global__ void __launch_bounds__(kThreads)
    memory_kernel(const __grid_constant__ Args args, const int64_t t) {
  __shared__ float parts[kThreads / 32];
  extern __shared__ float scratch[];  // [3, 2 k]
  nru::memory(Block{int(threadIdx.x), parts}, args, blockIdx.x, t, scratch);
}

// What nru_steps runs on. Every kernel but the first of backward follows a product and starts
// early.
template <class D>
bool follows(const NruForward<D, float>&, int64_t) {
  return true;
}
template <class D>
bool follows(const NruBackward<D, float>& a, int64_t t) {
  return t + 1 < a.shape.T;
}

struct Gpu {
  const cuda::Product &of_hidden, &of_maps;
  void* const workspace;
  const uintptr_t stream;

  void hidden(const void* x, const void* w, const void* added, void* out) const {
    of_hidden.run(x, w, added, out, workspace, stream);
  }
  void maps(const void* x, const void* w, void* out) const {
    of_maps.run(x, w, nullptr, out, workspace, stream);
  }
  template <class Args>
  void hidden_rows(const Args& a, int64_t t) const {
    cuda::launch(hidden_kernel<Args>, unsigned(a.shape.B), kThreads, 0, stream, true, a, t);
  }
  template <class Args>
  void memory_rows(const Args& a, int64_t t) const {
    const size_t bytes = size_t(a.shape.heads) * 6 * sizeof(float);
    cuda::launch(memory_kernel<Args>, unsigned(a.shape.B), kThreads, bytes, stream, follows(a, t),
                 a, t);
  }
};

// The arrays of a call, one after the other.
class Taken {
 public:
  explicit Taken(const std::vector<void*>& arrays) : arrays_(arrays) {}
  template <class T>
  operator T*() {
    return static_cast<T*>(arrays_.at(next_++));
  }

 private:
  const std::vector<void*>& arrays_;
  size_t next_ = 0;
};

}  // namespace

struct NruCuda::Prepared {
  const NruShape shape;
  const DType dtype;
  const bool backward;
  const NruProducts products;
  const cuda::Product hidden, maps;

  Prepared(const NruShape& s, DType kind, bool tf32, bool back)
      : shape(s),
        dtype(kind),
        backward(back),
        products(s, kind, DType::kFloat32, tf32, back),
        hidden(products.hidden),
        maps(products.maps) {}

  template <class D>
  void run(const std::vector<void*>& arrays, uintptr_t stream) const {
    Taken next(arrays);
    if (backward) {
      const NruBackward<D, float> args{shape, next, next, next, next, next, next, next,
                                       next,  next, next, next, next, next, next, next};
      nru_steps(Gpu{hidden, maps, next, stream}, args);
    } else {
      const NruForward<D, float> args{shape, next, next, next, next, next,
                                      next,  next, next, next, next};
      nru_steps(Gpu{hidden, maps, next, stream}, args);
    }
  }
};

NruCuda::NruCuda(const NruShape& shape, DType dtype, bool tf32, bool backward)
    : prepared_(std::make_unique<Prepared>(shape, dtype, tf32, backward)) {
  require(dtype != DType::kFloat64, "nru: dtype float64; accepted: float32, bfloat16");
}
NruCuda::~NruCuda() = default;

int64_t NruCuda::workspace() const {
  return std::max(prepared_->hidden.workspace(), prepared_->maps.workspace());
}

void NruCuda::run(const std::vector<void*>& arrays, uintptr_t stream) const {
  require(arrays.size() == (prepared_->backward ? 16 : 11), "nru: wrong number of arrays");
  if (prepared_->dtype == DType::kFloat32)
    prepared_->run<float>(arrays, stream);
  else
    prepared_->run<bf16>(arrays, stream);
}

}  // namespace tsm
