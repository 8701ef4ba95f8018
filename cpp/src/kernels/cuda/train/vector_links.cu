#include <cuda_bf16.h>

#include "core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/train/vector_links.h"

namespace tsm::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kUnits = 32, kRows = 32;  // of a block that adds up rows

struct RawVectors {
  RawVector at[kMaxVectors];
};
struct Links {
  Link at[kMaxVectors];
};

__device__ float linked(Link link, float raw) {
  if (link == Link::kSigmoid) return 1.0f / (1.0f + expf(-raw));
  return link == Link::kExp ? expf(raw) : raw;
}

__global__ void __launch_bounds__(kThreads)
    link_kernel(const __grid_constant__ RawVectors all, int64_t units, int64_t pitch,
                float* values) {
  const int64_t unit = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (unit >= pitch) return;
  const RawVector& p = all.at[blockIdx.y];
  float value = 1.0f;
  if (unit < units && p.is_float) {
    value = linked(p.link, static_cast<const float*>(p.raw)[unit * p.step]);
  } else if (unit < units) {
    const auto raw = static_cast<const __nv_bfloat16*>(p.raw)[unit * p.step];
    value = __bfloat162float(__float2bfloat16_rn(linked(p.link, __bfloat162float(raw))));
  }
  values[blockIdx.y * pitch + unit] = value;
}

// Thread (x, y) adds rows y, y + kRows, ... of unit x; then the sums are added in order.
__global__ void __launch_bounds__(kUnits* kRows)
    gradients_kernel(const VectorGradients p, const __grid_constant__ Links links) {
  __shared__ float sums[kRows][kUnits];
  const int64_t unit = int64_t(blockIdx.x) * kUnits + threadIdx.x, which = blockIdx.y;
  float sum = 0;
  if (unit < p.units) {
    const float* from = p.by_row + (which * p.rows + threadIdx.y) * p.pitch + unit;
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < p.rows; row += kRows, from += kRows * p.pitch)
      sum += *from;
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || unit >= p.units) return;
#pragma unroll
  for (int row = 1; row < kRows; ++row) sum += sums[row][threadIdx.x];
  const float value = p.values[which * p.pitch + unit];
  const Link link = links.at[which];
  if (link == Link::kSigmoid) sum *= (1.0f - value) * value;
  if (link == Link::kExp) sum *= value;
  p.of_raw[which * p.units + unit] = sum;
}

dim3 blocks(int64_t units, int of, int count) {
  const int64_t across = (units + of - 1) / of;
  require(0 < across && across <= INT32_MAX, "too many units");
  return {unsigned(across), unsigned(count)};
}

}  // namespace

void link_vectors(const RawVector* vectors, int count, int64_t units, int64_t pitch, float* values,
                  uintptr_t stream) {
  require(0 < count && count <= kMaxVectors, "the number of a cell's vectors");
  RawVectors all{};
  for (int i = 0; i < count; ++i) all.at[i] = vectors[i];
  link_kernel<<<blocks(pitch, kThreads, count), kThreads, 0, cudaStream_t(stream)>>>(all, units,
                                                                                     pitch, values);
  check(cudaGetLastError(), "vectors");
}

void vector_gradients(const VectorGradients& given, const Link* links, int count,
                      uintptr_t stream) {
  require(0 < count && count <= kMaxVectors, "the number of a cell's vectors");
  Links all{};
  for (int i = 0; i < count; ++i) all.at[i] = links[i];
  gradients_kernel<<<blocks(given.units, kUnits, count), dim3(kUnits, kRows), 0,
                     cudaStream_t(stream)>>>(given, all);
  check(cudaGetLastError(), "gradients of vectors");
}

}  // namespace tsm::cuda
