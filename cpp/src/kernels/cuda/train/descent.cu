// All arrays in one launch, up to kMost. A block takes one part of an array at a time.
#include <algorithm>
#include <cfloat>
#include <cstdint>

#include "core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/train/descent.h"

namespace tsm::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kGroups = 4;                     // groups of four numbers per thread
constexpr int kPart = kThreads * kGroups * 4;  // numbers
constexpr int kMost = 64;
constexpr double kSmallest = FLT_MIN;  // count

struct Arrays {
  TrainedArray array[kMost];
  int32_t end[kMost];  // parts of all arrays up to and including this one
};

struct Part {
  const TrainedArray& of;
  int64_t start;
  int count;
};

__device__ Part part_at(const Arrays& all, int32_t at) {
  int which = 0;
  while (at >= all.end[which]) ++which;
  const TrainedArray& of = all.array[which];
  const int64_t start = int64_t(which == 0 ? at : at - all.end[which - 1]) * kPart;
  return {of, start, int(min(of.length - start, int64_t(kPart)))};
}

struct alignas(16) Four {
  float at[4];
};

__device__ bool in_fours(const float* first, int count) {
  return count == kPart && reinterpret_cast<uintptr_t>(first) % 16 == 0;
}

// The index of number i of this thread in its part.
__device__ int index_of(int i) { return 4 * (int(threadIdx.x) + i / 4 * kThreads) + i % 4; }

// The numbers of this thread; 0 after the end.
__device__ void load(const float* first, int count, Four (&to)[kGroups]) {
  if (in_fours(first, count)) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n)
      to[n] = *reinterpret_cast<const Four*>(first + index_of(4 * n));
  } else {
#pragma unroll
    for (int i = 0; i < 4 * kGroups; ++i)
      to[i / 4].at[i % 4] = index_of(i) < count ? first[index_of(i)] : 0.0f;
  }
}

__device__ void store(const Four (&from)[kGroups], float* first, int count) {
  if (in_fours(first, count)) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) *reinterpret_cast<Four*>(first + index_of(4 * n)) = from[n];
  } else {
#pragma unroll
    for (int i = 0; i < 4 * kGroups; ++i)
      if (index_of(i) < count) first[index_of(i)] = from[i / 4].at[i % 4];
  }
}

__device__ double sum_over_block(double own) {
  for (int other = 16; other > 0; other /= 2) own += __shfl_xor_sync(~0u, own, other);
  __shared__ double of_warps[kWarps];
  __syncthreads();  // an earlier sum has been read
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += of_warps[w];
  return sum;
}

// Each block writes the sum of its squares; the last one to arrive adds them up. Until the last
// launch, out[0] is the sum so far, and out[1] the number of blocks that have arrived.
__global__ void __launch_bounds__(kThreads)
    norm_kernel(const __grid_constant__ Arrays all, int32_t parts, const double* count,
                double limit, bool last_launch, double* out) {
  double* const sums = out + 2;
  double sum = 0;
  for (int32_t at = int32_t(blockIdx.x); at < parts; at += int32_t(gridDim.x)) {
    const Part part = part_at(all, at);
    Four g[kGroups];
    load(part.of.gradient + part.start, part.count, g);
#pragma unroll
    for (int n = 0; n < kGroups; ++n)
#pragma unroll
      for (int k = 0; k < 4; ++k) sum += double(g[n].at[k]) * double(g[n].at[k]);
  }
  sum = sum_over_block(sum);
  __shared__ bool last;
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
    __threadfence();
    last = atomicAdd(reinterpret_cast<unsigned*>(out + 1), 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) sum += __ldcg(sums + i);
  sum = sum_over_block(sum);
  if (threadIdx.x != 0) return;
  sum += out[0];
  const double scale = 1 / (*count < kSmallest ? kSmallest : *count);  // NaN stays NaN
  const double norm = scale * sqrt(sum), clip = limit / (norm + 1e-6);
  out[0] = last_launch ? norm : sum;
  out[1] = last_launch ? scale * (clip > 1 ? 1 : clip) : 0;  // NaN stays NaN
}

// Parts from the last to the first: the gradients that the norm has read last may still be in the
// cache.
__global__ void __launch_bounds__(kThreads)
    step_kernel(const __grid_constant__ Arrays all, DescentStep step) {
  const Part part = part_at(all, int32_t(gridDim.x - 1 - blockIdx.x));
  float* const weight = part.of.weight + part.start;
  Four w[kGroups], g[kGroups], a[kGroups];
  load(weight, part.count, w);
  load(part.of.gradient + part.start, part.count, g);
  if (part.of.average) load(part.of.average + part.start, part.count, a);
  const float factor = step.factor ? float(*step.factor) : 1.0f;
#pragma unroll
  for (int n = 0; n < kGroups; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float& x = w[n].at[k];
      x = fmaf(-step.rate, fmaf(step.decay, x, factor * g[n].at[k]), x);
    }
  store(w, weight, part.count);
  if (!part.of.average) return;
#pragma unroll
  for (int n = 0; n < kGroups; ++n)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float x = w[n].at[k], before = a[n].at[k];
      a[n].at[k] = step.share < 0.5f ? fmaf(step.share, x - before, before)
                                     : fmaf(step.share - 1.0f, x - before, x);
    }
  store(a, part.of.average + part.start, part.count);
}

// Calls launch(arrays, number of parts, whether it is the last call) with up to kMost arrays at a
// time.
template <class Launch>
void for_each_table(const std::vector<TrainedArray>& arrays, const Launch& launch) {
  for (size_t from = 0; from < arrays.size(); from += kMost) {
    Arrays some{};
    const size_t count = std::min(arrays.size() - from, size_t(kMost));
    int64_t parts = 0;
    for (size_t i = 0; i < count; ++i) {
      some.array[i] = arrays[from + i];
      parts += (some.array[i].length + kPart - 1) / kPart;
      require(parts <= INT32_MAX, "an array is too large");
      some.end[i] = int32_t(parts);
    }
    launch(some, int32_t(parts), from + kMost >= arrays.size());
    check(cudaGetLastError(), "launching gradient descent");
  }
}

}  // namespace

void gradient_norm(const std::vector<TrainedArray>& arrays, const double* count, double limit,
                   int blocks, double* out, uintptr_t stream) {
  require(!arrays.empty() && blocks >= 1, "the norm of no gradients, or by no block");
  for_each_table(arrays, [&](const Arrays& some, int32_t parts, bool last) {
    const int used = std::clamp(parts, 1, blocks);
    norm_kernel<<<unsigned(used), kThreads, 0, reinterpret_cast<cudaStream_t>(stream)>>>(
        some, parts, count, limit, last, out);
  });
}

void descend(const std::vector<TrainedArray>& arrays, const DescentStep& step, uintptr_t stream) {
  for_each_table(arrays, [&](const Arrays& some, int32_t parts, bool) {
    if (parts > 0)
      step_kernel<<<unsigned(parts), kThreads, 0, reinterpret_cast<cudaStream_t>(stream)>>>(some,
                                                                                            step);
  });
}

}  // namespace tsm::cuda
