#include <cuda_bf16.h>

#include "core/error.h"
#include "kernels/check_cuda.h"
#include "kernels/pieces_cuda.h"

namespace tsm::cuda {
namespace {

constexpr int kThreads = 256, kColumns = 8;  // of a block; of a thread, in one row

struct Pieces {
  Piece piece[kMaxPieces];
  uint32_t end[kMaxPieces];  // threads up to and with each piece
  bool pairs[kMaxPieces];    // both are bfloat16 and two numbers can be copied as one
};

__device__ float number(const Piece& p, int64_t at) {
  if (p.from_float) return __ldg(static_cast<const float*>(p.from) + at);
  return __bfloat162float(__ldg(static_cast<const __nv_bfloat16*>(p.from) + at));
}

// Columns from `first` on of one row, whose source is there or not.
__device__ void copy_numbers(const Piece& p, bool there, int64_t from, int64_t to, int first) {
  float value[kColumns];
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int k = first + n;
    value[n] = there && k < p.inside[2] ? number(p, from + k * p.from_step[2]) : p.fill;
  }
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int k = first + n;
    if (k >= p.size[2]) break;
    const int64_t at = to + k * p.to_step[2];
    if (p.to_float)
      static_cast<float*>(p.to)[at] = value[n];
    else
      static_cast<__nv_bfloat16*>(p.to)[at] = __float2bfloat16_rn(value[n]);
  }
}

__device__ void copy_pairs(const Piece& p, bool there, int64_t from, int64_t to, int first) {
  const auto* source =
      reinterpret_cast<const uint32_t*>(static_cast<const __nv_bfloat16*>(p.from) + from + first);
  auto* target = reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.to) + to + first);
  const __nv_bfloat162 both = __float2bfloat162_rn(p.fill);
  const uint32_t fill = reinterpret_cast<const uint32_t&>(both);
  uint32_t two[kColumns / 2];
#pragma unroll
  for (int n = 0; n < kColumns / 2; ++n)
    two[n] = there && first + 2 * n < p.inside[2] ? __ldg(source + n) : fill;
#pragma unroll
  for (int n = 0; n < kColumns / 2; ++n)
    if (first + 2 * n < p.size[2]) target[n] = two[n];
}

__global__ void __launch_bounds__(kThreads)
    copy_kernel(const __grid_constant__ Pieces all, int count) {
  uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  int which = 0;
  while (which < count && thread >= all.end[which]) ++which;
  if (which == count) return;
  if (which > 0) thread -= all.end[which - 1];
  const Piece& p = all.piece[which];
  const uint32_t across = (uint32_t(p.size[2]) + kColumns - 1) / kColumns;
  const uint32_t row = thread / across, i = row / uint32_t(p.size[1]);
  const uint32_t j = row - i * uint32_t(p.size[1]);
  const int first = int(thread - row * across) * kColumns;
  const bool there = p.from && int(i) < p.inside[0] && int(j) < p.inside[1];
  const int64_t from = i * p.from_step[0] + j * p.from_step[1];
  const int64_t to = i * p.to_step[0] + j * p.to_step[1];
  if (all.pairs[which])
    copy_pairs(p, there, from, to, first);
  else
    copy_numbers(p, there, from, to, first);
}

bool in_pairs(const Piece& p) {
  const auto even = [](const void* at, const int64_t (&step)[3]) {
    return reinterpret_cast<uintptr_t>(at) % 4 == 0 && step[0] % 2 == 0 && step[1] % 2 == 0;
  };
  return !p.from_float && !p.to_float && p.size[2] % 2 == 0 && p.inside[2] % 2 == 0 &&
         p.to_step[2] == 1 && (!p.from || p.from_step[2] == 1) && even(p.from, p.from_step) &&
         even(p.to, p.to_step);
}

}  // namespace

void copy_pieces(const Piece* pieces, int count, uintptr_t stream) {
  require(count <= kMaxPieces, "too many pieces");
  Pieces all{};
  uint64_t threads = 0;
  for (int i = 0; i < count; ++i) {
    const Piece& p = all.piece[i] = pieces[i];
    const uint64_t across = (uint64_t(p.size[2]) + kColumns - 1) / kColumns;
    threads += uint64_t(p.size[0]) * uint64_t(p.size[1]) * across;
    require(threads < (uint64_t(1) << 31), "a piece is too large");
    all.end[i] = uint32_t(threads);
    all.pairs[i] = in_pairs(p);
  }
  if (threads == 0) return;
  const unsigned blocks = unsigned((threads + kThreads - 1) / kThreads);
  copy_kernel<<<blocks, kThreads, 0, cudaStream_t(stream)>>>(all, count);
  check(cudaGetLastError(), "copies");
}

}  // namespace tsm::cuda
