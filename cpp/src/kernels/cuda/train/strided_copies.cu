#include <cuda_bf16.h>

#include "core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/train/strided_copies.h"

namespace tsm::cuda {
namespace {

constexpr int kThreads = 256, kItems = 8;  // threads per block; items per thread, all in one row

// An item is one number or, if both sides allow it, a pair of bfloat16 numbers.
struct Copies {
  StridedCopy copy[kMaxStridedCopies];
  uint32_t end[kMaxStridedCopies];   // threads of all copies up to and including this one
  int32_t width[kMaxStridedCopies];  // of a row, in items
  int32_t lanes[kMaxStridedCopies];  // threads per row; item n of a thread is n x lanes further
  bool pairs[kMaxStridedCopies];
};

__device__ float number(const StridedCopy& p, int64_t at) {
  if (p.from_float) return __ldg(static_cast<const float*>(p.from) + at);
  return __bfloat162float(__ldg(static_cast<const __nv_bfloat16*>(p.from) + at));
}

// Copies items first, first + lanes, ... of one row. there: the row exists in the source.
__device__ void copy_numbers(const StridedCopy& p, bool there, int64_t from, int64_t to, int first,
                             int lanes) {
  float value[kItems];
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const int k = first + n * lanes;
    value[n] = there && k < p.inside[2] ? number(p, from + k * p.from_step[2]) : p.fill;
  }
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const int k = first + n * lanes;
    if (k >= p.size[2]) break;
    const int64_t at = to + k * p.to_step[2];
    if (p.to_float)
      static_cast<float*>(p.to)[at] = value[n];
    else
      static_cast<__nv_bfloat16*>(p.to)[at] = __float2bfloat16_rn(value[n]);
  }
}

__device__ void copy_pairs(const StridedCopy& p, bool there, int64_t from, int64_t to, int first,
                           int lanes) {
  const auto* source =
      reinterpret_cast<const uint32_t*>(static_cast<const __nv_bfloat16*>(p.from) + from);
  auto* target = reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.to) + to);
  const __nv_bfloat162 both = __float2bfloat162_rn(p.fill);
  const uint32_t fill = reinterpret_cast<const uint32_t&>(both);
  uint32_t two[kItems];
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const int k = first + n * lanes;
    two[n] = there && 2 * k < p.inside[2] ? __ldg(source + k) : fill;
  }
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const int k = first + n * lanes;
    if (2 * k < p.size[2]) target[k] = two[n];
  }
}

__host__ __device__ uint32_t threads_of_row(uint32_t width, uint32_t lanes) {
  return (width + kItems * lanes - 1) / (kItems * lanes) * lanes;
}

__global__ void __launch_bounds__(kThreads)
    copy_kernel(const __grid_constant__ Copies all, int count) {
  uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  int which = 0;
  while (which < count && thread >= all.end[which]) ++which;
  if (which == count) return;
  if (which > 0) thread -= all.end[which - 1];
  const StridedCopy& p = all.copy[which];
  const uint32_t lanes = uint32_t(all.lanes[which]);
  const uint32_t across = threads_of_row(uint32_t(all.width[which]), lanes);
  const uint32_t row = thread / across, i = row / uint32_t(p.size[1]);
  const uint32_t j = row - i * uint32_t(p.size[1]);
  const uint32_t in_row = thread - row * across, lane = in_row % lanes;
  const int first = int((in_row - lane) * kItems + lane);
  const bool there = p.from && int(i) < p.inside[0] && int(j) < p.inside[1];
  const int64_t from = i * p.from_step[0] + j * p.from_step[1];
  const int64_t to = i * p.to_step[0] + j * p.to_step[1];
  if (all.pairs[which])
    copy_pairs(p, there, from, to, first, int(lanes));
  else
    copy_numbers(p, there, from, to, first, int(lanes));
}

bool in_pairs(const StridedCopy& p) {
  const auto even = [](const void* at, const int64_t (&step)[3]) {
    return reinterpret_cast<uintptr_t>(at) % 4 == 0 && step[0] % 2 == 0 && step[1] % 2 == 0;
  };
  return !p.from_float && !p.to_float && p.size[2] % 2 == 0 && p.inside[2] % 2 == 0 &&
         p.to_step[2] == 1 && (!p.from || p.from_step[2] == 1) && even(p.from, p.from_step) &&
         even(p.to, p.to_step);
}

// Threads per row: a whole warp for wide rows, so that accesses are coalesced; fewer for narrow
// rows.
int32_t lanes_for(int32_t width) {
  int32_t lanes = 1;
  while (lanes < 32 && lanes * kItems < width) lanes *= 2;
  return lanes;
}

}  // namespace

void copy_strided(const StridedCopy* copies, int count, uintptr_t stream) {
  require(count <= kMaxStridedCopies, "too many copies");
  Copies all{};
  uint64_t threads = 0;
  for (int i = 0; i < count; ++i) {
    const StridedCopy& p = all.copy[i] = copies[i];
    all.pairs[i] = in_pairs(p);
    all.width[i] = all.pairs[i] ? p.size[2] / 2 : p.size[2];
    all.lanes[i] = lanes_for(all.width[i]);
    const uint32_t across = threads_of_row(uint32_t(all.width[i]), uint32_t(all.lanes[i]));
    threads += uint64_t(p.size[0]) * uint64_t(p.size[1]) * across;
    require(threads < (uint64_t(1) << 31), "a copy is too large");
    all.end[i] = uint32_t(threads);
  }
  if (threads == 0) return;
  const unsigned blocks = unsigned((threads + kThreads - 1) / kThreads);
  copy_kernel<<<blocks, kThreads, 0, cudaStream_t(stream)>>>(all, count);
  check(cudaGetLastError(), "copies");
}

}  // namespace tsm::cuda
