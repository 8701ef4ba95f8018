// A block writes kRows rows of the table. Each of its warps lists where the token of one row
// occurs; then all threads add the listed rows of grad, each in columns of its own. Frequent tokens
// often have neighbouring numbers, so the rows of a block are far apart.
#include "core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/train/embedding.h"
#include "kernels/cuda/train/numbers.cuh"

namespace tsm::cuda {
namespace {

constexpr int kRows = 4, kThreads = 32 * kRows;
constexpr int kStride = 128;  // tokens that a warp looks at together
constexpr int kAhead = 8;     // rows of grad that are loaded together

__device__ int32_t token_at(const EmbeddingGradient& p, int64_t at) {
  if (at >= p.count) return -1;
  const int64_t token = p.wide ? static_cast<const int64_t*>(p.tokens)[at]
                               : static_cast<const int32_t*>(p.tokens)[at];
  return token >= 0 && token < p.rows ? int32_t(token) : -1;
}

// A warp lists the places of `token` among `count`, in order; returns how many there are.
__device__ int list(const int32_t* tokens, int count, int32_t token, uint16_t* places) {
  const unsigned lane = threadIdx.x % 32;
  int found = 0;
  for (int from = 0; from < count; from += kStride) {
    unsigned hits[kStride / 32], any = 0;
#pragma unroll
    for (int k = 0; k < kStride / 32; ++k)
      any |= hits[k] = __ballot_sync(~0u, tokens[from + 32 * k + lane] == token);
    if (any == 0) continue;
#pragma unroll
    for (int k = 0; k < kStride / 32; ++k) {
      if (hits[k] >> lane & 1)
        places[found + __popc(hits[k] & ((1u << lane) - 1))] = uint16_t(from + 32 * k + lane);
      found += __popc(hits[k]);
    }
  }
  return found;
}

// The sum of the listed rows of `grad`, loaded kAhead at a time.
template <int N>
__device__ Several<float, N> sum_of(const float* grad, int64_t width, const uint16_t* places,
                                    int count) {
  Several<float, N> sum = {};
  for (int from = 0; from < count; from += kAhead) {
    Several<float, N> next[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (from + k < count)
        next[k] = *reinterpret_cast<const Several<float, N>*>(grad + places[from + k] * width);
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (from + k < count)
#pragma unroll
        for (int n = 0; n < N; ++n) sum.at[n] += next[k].at[n];
  }
  return sum;
}

template <int N>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(EmbeddingGradient p, int padded, float* out) {
  extern __shared__ int32_t tokens[];  // [padded]
  const auto places = [&](int r) {
    return reinterpret_cast<uint16_t*>(tokens + padded) + r * padded;
  };
  __shared__ int found[kRows];
  for (int i = int(threadIdx.x); i < padded; i += kThreads) tokens[i] = token_at(p, i);
  __syncthreads();
  const auto row_of = [](int r) { return int64_t(blockIdx.x) + int64_t(r) * gridDim.x; };
  const int warp = int(threadIdx.x) / 32;
  const int own = list(tokens, padded, int32_t(row_of(warp)), places(warp));
  if (threadIdx.x % 32 == 0) found[warp] = own;
  __syncthreads();
  const int64_t column = (int64_t(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (column >= p.width) return;
  for (int r = 0; r < kRows && row_of(r) < p.rows; ++r) {
    Several<float, N> sum = sum_of<N>(p.grad + column, p.width, places(r), found[r]);
    const float factor = p.factors ? p.factors[row_of(r)] : 1.0f;
#pragma unroll
    for (int n = 0; n < N; ++n) sum.at[n] *= factor;
    *reinterpret_cast<Several<float, N>*>(out + row_of(r) * p.width + column) = sum;
  }
}

}  // namespace

void embedding_gradient(const EmbeddingGradient& given, float* out, uintptr_t stream) {
  const auto starts = reinterpret_cast<uintptr_t>(given.grad) | reinterpret_cast<uintptr_t>(out);
  const bool aligned = starts % 16 == 0 && given.width % 4 == 0;
  const int64_t columns = kThreads * (aligned ? 4 : 1);  // of a block
  const int64_t across = (given.width + columns - 1) / columns;
  require(given.count >= 0 && given.count <= kMostTokens && given.rows >= 1 &&
              given.rows <= 1 << 30 && given.width >= 1 && across <= 65535,
          "the gradient of an empty table, or of too large a one, or of too many tokens");
  const dim3 blocks(unsigned((given.rows + kRows - 1) / kRows), unsigned(across));
  const auto kernel = aligned ? gradient_kernel<4> : gradient_kernel<1>;
  const int padded = int(given.count + kStride - 1) / kStride * kStride;
  const size_t shared = size_t(padded) * (sizeof(int32_t) + kRows * sizeof(uint16_t));
  kernel<<<blocks, kThreads, shared, reinterpret_cast<cudaStream_t>(stream)>>>(given, padded, out);
  check(cudaGetLastError(), "launching the gradient of a table");
}

}  // namespace tsm::cuda
