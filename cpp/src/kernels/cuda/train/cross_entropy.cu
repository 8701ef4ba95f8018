// One block per row. The sum is computed in one pass, relative to the largest logit so far.
#include <cfloat>
#include <cmath>
#include <type_traits>

#include "core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/train/cross_entropy.h"
#include "kernels/cuda/train/numbers.cuh"

namespace tsm::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// sum exp(z - most). `most` is finite at first: a logit may be -infinity.
struct Sum {
  float most = -FLT_MAX, sum = 0.0f;

  __device__ void add(const Sum& other) {
    const float top = fmaxf(most, other.most);
    sum = sum * expf(most - top) + other.sum * expf(other.most - top);
    most = top;
  }
};

__device__ bool is_class(int64_t target, int64_t classes) {
  return target >= 0 && target < classes;
}

template <class D, int N>
__global__ void __launch_bounds__(kThreads) loss_kernel(LossRows p, float* losses) {
  const int64_t row = blockIdx.x;
  const D* logits = static_cast<const D*>(p.logits) + row * p.classes;
  const auto* groups = reinterpret_cast<const Several<D, N>*>(logits);
  Sum own;
  for (int64_t i = threadIdx.x; i < p.classes / N; i += kThreads) {
    const Several<D, N> z = groups[i];
    float top = own.most;
#pragma unroll
    for (int k = 0; k < N; ++k) top = fmaxf(top, as_float(z.at[k]));
    own.sum *= expf(own.most - top);
    own.most = top;
#pragma unroll
    for (int k = 0; k < N; ++k) own.sum += expf(as_float(z.at[k]) - top);
  }
  for (int other = 16; other > 0; other /= 2)
    own.add({__shfl_xor_sync(~0u, own.most, other), __shfl_xor_sync(~0u, own.sum, other)});
  __shared__ Sum of_warps[kWarps];
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) own.add(of_warps[w]);
  const float log_sum = own.most + logf(own.sum);
  const int64_t target = p.target[row];
  p.log_sums[row] = log_sum;
  losses[row] = is_class(target, p.classes) ? log_sum - as_float(logits[target])
                : target == kIgnored        ? 0.0f
                                            : NAN;
}

template <class D, int N>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(LossRows p, const float* grad, int64_t grad_step, D* out) {
  const int64_t row = blockIdx.x, target = p.target[row];
  const float log_sum = p.log_sums[row];
  const float factor = is_class(target, p.classes) ? grad[row * grad_step]
                       : target == kIgnored        ? 0.0f
                                                   : NAN;
  const auto* from =
      reinterpret_cast<const Several<D, N>*>(static_cast<const D*>(p.logits) + row * p.classes);
  auto* to = reinterpret_cast<Several<D, N>*>(out + row * p.classes);
  for (int64_t i = threadIdx.x; i < p.classes / N; i += kThreads) {
    const Several<D, N> z = from[i];
    Several<D, N> g;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float share = expf(as_float(z.at[k]) - log_sum);
      assign(g.at[k], factor * (share - (i * N + k == target ? 1.0f : 0.0f)));
    }
    to[i] = g;
  }
}

// Calls `launch` with the dtype and with 16 bytes of numbers, or with 1 if rows are not aligned.
template <class Launch>
void for_dtype(const LossRows& p, const void* out, const Launch& launch) {
  require(p.rows >= 0 && p.rows <= INT32_MAX && p.classes >= 1,
          "a loss of too many rows, or of no class");
  if (p.rows == 0) return;
  const auto starts = reinterpret_cast<uintptr_t>(p.logits) | reinterpret_cast<uintptr_t>(out);
  const bool aligned = starts % 16 == 0 && p.classes * (p.is_float ? 4 : 2) % 16 == 0;
  const __nv_bfloat16 half{};
  if (p.is_float)
    aligned ? launch(0.0f, std::integral_constant<int, 4>())
            : launch(0.0f, std::integral_constant<int, 1>());
  else
    aligned ? launch(half, std::integral_constant<int, 8>())
            : launch(half, std::integral_constant<int, 1>());
  check(cudaGetLastError(), "launching the loss");
}

}  // namespace

void cross_entropy(const LossRows& rows, float* losses, uintptr_t stream) {
  for_dtype(rows, nullptr, [&](auto number, auto several) {
    loss_kernel<decltype(number), several()>
        <<<uint32_t(rows.rows), kThreads, 0, reinterpret_cast<cudaStream_t>(stream)>>>(rows,
                                                                                       losses);
  });
}

void cross_entropy_gradient(const LossRows& rows, const float* grad, int64_t grad_step, void* out,
                            uintptr_t stream) {
  for_dtype(rows, out, [&](auto number, auto several) {
    gradient_kernel<decltype(number), several()>
        <<<uint32_t(rows.rows), kThreads, 0, reinterpret_cast<cudaStream_t>(stream)>>>(
            rows, grad, grad_step, static_cast<decltype(number)*>(out));
  });
}

}  // namespace tsm::cuda
