#include <algorithm>

#include "core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/train/numbers.cuh"
#include "kernels/cuda/train/regularisers.h"

namespace tsm::cuda {
namespace {

constexpr int kThreads = 128;

// A thread computes N units of one step.
template <class Real, int N>
__device__ void gradients(const Activations& p, bool of_changes, float count) {
  using Numbers = Several<Real, N>;
  const unsigned groups = unsigned(p.units) / N, steps = unsigned(p.steps);
  const unsigned i = blockIdx.x * kThreads + threadIdx.x, at = i / groups;
  if (at >= unsigned(p.rows) * steps) return;
  const unsigned unit = (i - at * groups) * N, row = at / steps, t = at - row * steps;
  const Real* const now = static_cast<const Real*>(p.values) + row * p.row_step + t * p.step + unit;
  const auto read = [&](int64_t from) { return *reinterpret_cast<const Numbers*>(now + from); };
  Numbers y = read(0);
  const Numbers before = of_changes && t > 0 ? read(-p.step) : y;
  const Numbers after = of_changes && t + 1 < steps ? read(p.step) : y;
  const float factor = count * p.factor;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float own = as_float(y.at[n]);
    const float bend = (as_float(after.at[n]) - own) - (own - as_float(before.at[n]));
    assign(y.at[n], (of_changes ? bend : own) * factor);
  }
  *reinterpret_cast<Numbers*>(static_cast<Real*>(p.grad) + int64_t(at) * p.units + unit) = y;
}

template <class Real, int N>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const Activations ar, const Activations tar, const float* count) {
  gradients<Real, N>(blockIdx.y == 0 ? ar : tar, blockIdx.y == 1, *count);
}

// Whether N numbers can be read and written at once.
bool in_groups(const Activations& p, int N, int bytes) {
  const auto starts = reinterpret_cast<uintptr_t>(p.values) | reinterpret_cast<uintptr_t>(p.grad);
  return starts % (N * bytes) == 0 && (p.row_step | p.step | p.units) % N == 0;
}

template <class Real>
void launch(const Activations& ar, const Activations& tar, const float* count, int64_t numbers,
            cudaStream_t stream) {
  constexpr int kN = 16 / sizeof(Real);
  const bool wide = in_groups(ar, kN, sizeof(Real)) && in_groups(tar, kN, sizeof(Real));
  const int64_t per_block = kThreads * (wide ? kN : 1);
  const dim3 blocks(unsigned((numbers + per_block - 1) / per_block), 2);
  const auto kernel = wide ? gradients_kernel<Real, kN> : gradients_kernel<Real, 1>;
  kernel<<<blocks, kThreads, 0, stream>>>(ar, tar, count);
}

}  // namespace

void regulariser_gradients(bool is_float, const float* count, const Activations& ar,
                           const Activations& tar, uintptr_t stream) {
  int64_t numbers = 0;
  for (const Activations& p : {ar, tar}) {
    require(p.rows >= 0 && p.steps >= 1 && p.units >= 1 && p.units <= INT32_MAX / p.steps &&
                p.rows <= INT32_MAX / (p.steps * p.units),
            "the sizes of activations");
    numbers = std::max(numbers, p.rows * p.steps * p.units);
  }
  if (numbers == 0) return;
  const auto run = is_float ? launch<float> : launch<__nv_bfloat16>;
  run(ar, tar, count, numbers, reinterpret_cast<cudaStream_t>(stream));
  check(cudaGetLastError(), "launching the gradients of regularisers");
}

}  // namespace tsm::cuda
