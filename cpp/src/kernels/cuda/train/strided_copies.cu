#include "core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/train/numbers.cuh"
#include "kernels/cuda/train/strided_copies.h"

namespace tsm::cuda {
namespace {

constexpr int kThreads = 256, kItems = 4;  // threads per block; items per thread, all in one row
// Blocks per multiprocessor: as many as have enough registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int kBlocks = 5;
#else
constexpr int kBlocks = 6;
#endif

struct Copies {
  StridedCopy copy[kMaxStridedCopies];
  uint32_t end[kMaxStridedCopies];     // blocks of all copies up to and including this one
  uint32_t across[kMaxStridedCopies];  // threads per row; item n of a thread is n x across further
  int32_t numbers[kMaxStridedCopies];  // of an item: 1, 2 or 4
};
static_assert(sizeof(Copies) <= 4096, "all parameters of a kernel, on any GPU");

// N neighbouring bytes of a mask.
template <int N>
__device__ uint32_t mask_item(const uint8_t* mask) {
  if constexpr (N == 4) return *reinterpret_cast<const uint32_t*>(mask);
  if constexpr (N == 2) return *reinterpret_cast<const uint16_t*>(mask);
  return *mask;
}

// Copies items first, first + across, ... of row i, j. kMasks: there may be a mask.
template <class From, class To, int N, bool kMasks>
__device__ void copy_items(const StridedCopy& p, uint32_t i, uint32_t j, uint32_t first,
                           uint32_t across) {
  const bool there = p.from && i < uint32_t(p.inside[0]) && j < uint32_t(p.inside[1]);
  const uint32_t inside = there ? uint32_t(p.inside[2]) : 0, size = uint32_t(p.size[2]);
  const From* from = static_cast<const From*>(p.from) + i * p.from_step[0] + j * p.from_step[1];
  To* to = static_cast<To*>(p.to) + i * p.to_step[0] + j * p.to_step[1];
  const uint8_t* mask = p.mask + i * p.mask_step[0] + j * p.mask_step[1];
  // Items of several numbers are dense (in_items).
  const auto place = [](uint32_t at, int64_t step) { return N == 1 ? at * step : int64_t(at); };
  const bool masked = kMasks && p.mask;
  Several<From, N> read[kItems];  // all reads are under way before the first of them is used
  uint32_t keep[kItems];
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const uint32_t at = (first + n * across) * N;
    if (at < inside)
      read[n] = *reinterpret_cast<const Several<From, N>*>(from + place(at, p.from_step[2]));
  }
  if (masked) {
#pragma unroll
    for (int n = 0; n < kItems; ++n) {
      const uint32_t at = (first + n * across) * N;
      if (at < inside) keep[n] = mask_item<N>(mask + place(at, p.mask_step[2]));
    }
  }
#pragma unroll
  for (int n = 0; n < kItems; ++n) {
    const uint32_t at = (first + n * across) * N;
    Several<To, N> item;
#pragma unroll
    for (int m = 0; m < N; ++m) {
      if (at >= inside)
        assign(item.at[m], p.fill);
      else if (masked)
        assign(item.at[m], as_float(read[n].at[m]) * ((keep[n] >> (8 * m) & 255) ? p.scale : 0.0f));
      else
        assign(item.at[m], read[n].at[m]);
    }
    if (at < size) *reinterpret_cast<Several<To, N>*>(to + place(at, p.to_step[2])) = item;
  }
}

template <class From, class To, bool kMasks, class... Where>
__device__ void copy_row(int numbers, const Where&... where) {
  if (numbers == 4)
    copy_items<From, To, 4, kMasks>(where...);
  else if (numbers == 2)
    copy_items<From, To, 2, kMasks>(where...);
  else
    copy_items<From, To, 1, kMasks>(where...);
}

template <bool kMasks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    copy_kernel(const __grid_constant__ Copies all) {
  int which = 0;
  while (blockIdx.x >= all.end[which]) ++which;
  const StridedCopy& p = all.copy[which];
  const int numbers = all.numbers[which];
  const uint32_t across = all.across[which], block = blockIdx.x - (which ? all.end[which - 1] : 0);
  const uint32_t thread = block * kThreads + threadIdx.x, row = thread / across;
  const uint32_t i = row / uint32_t(p.size[1]), j = row - i * uint32_t(p.size[1]);
  const uint32_t first = thread - row * across;
  if (i >= uint32_t(p.size[0])) return;
  if (p.from_float && p.to_float)
    copy_row<float, float, kMasks>(numbers, p, i, j, first, across);
  else if (p.from_float)
    copy_row<float, __nv_bfloat16, kMasks>(numbers, p, i, j, first, across);
  else if (p.to_float)
    copy_row<__nv_bfloat16, float, kMasks>(numbers, p, i, j, first, across);
  else
    copy_row<__nv_bfloat16, __nv_bfloat16, kMasks>(numbers, p, i, j, first, across);
}

// Whether items of n numbers are aligned, and none is partly outside.
bool in_items(const StridedCopy& p, int n) {
  const auto aligned = [n](const void* at, int bytes, const int64_t (&step)[3]) {
    return reinterpret_cast<uintptr_t>(at) % (n * bytes) == 0 && step[0] % n == 0 &&
           step[1] % n == 0 && step[2] == 1;
  };
  return p.size[2] % n == 0 && p.inside[2] % n == 0 &&
         aligned(p.to, p.to_float ? 4 : 2, p.to_step) &&
         (!p.from || aligned(p.from, p.from_float ? 4 : 2, p.from_step)) &&
         (!p.mask || aligned(p.mask, 1, p.mask_step));
}

// Threads per row: whole warps for wide rows, so that accesses are coalesced; fewer for narrow
// rows.
uint32_t threads_for(uint32_t width) {
  uint32_t threads = 1;
  while (threads < 32 && threads * kItems < width) threads *= 2;
  return (width + threads * kItems - 1) / (threads * kItems) * threads;
}

}  // namespace

void copy_strided(const StridedCopy* copies, int count, uintptr_t stream) {
  require(count <= kMaxStridedCopies, "too many copies");
  Copies all{};
  uint64_t blocks = 0;
  bool masks = false;
  for (int i = 0; i < count; ++i) {
    const StridedCopy& p = all.copy[i] = copies[i];
    all.numbers[i] = in_items(p, 4) ? 4 : in_items(p, 2) ? 2 : 1;
    all.across[i] = threads_for(uint32_t(p.size[2] / all.numbers[i]));
    const uint64_t threads = uint64_t(p.size[0]) * uint64_t(p.size[1]) * all.across[i];
    blocks += (threads + kThreads - 1) / kThreads;
    require(blocks * kThreads < (uint64_t(1) << 31), "a copy is too large");
    all.end[i] = uint32_t(blocks);
    masks |= p.mask != nullptr;
  }
  if (blocks == 0) return;
  const auto kernel = masks ? copy_kernel<true> : copy_kernel<false>;
  kernel<<<unsigned(blocks), kThreads, 0, cudaStream_t(stream)>>>(all);
  check(cudaGetLastError(), "copies");
}

}  // namespace tsm::cuda
