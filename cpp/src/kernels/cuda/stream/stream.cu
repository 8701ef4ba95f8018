// The streaming kernels that do not depend on the cell.
#include <cuda_runtime.h>

#include <algorithm>

#include "cells/generated/all.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/stream/stream.h"
#include "kernels/cuda/stream/weight_tiles.cuh"

namespace tsm::cuda {

#define TSM_DECLARE(cell) extern const CudaCell k_##cell;
TSM_FOR_EACH_CELL(TSM_DECLARE)
#undef TSM_DECLARE

namespace {

// Calls f with the Tiles of a kind.
template <class Function>
auto with_tiles(Weights kind, const Function& f) {
  if (kind == Weights::kFloat32) return f(FloatTiles());
  if (kind == Weights::kInt8) return f(TensorTiles<true>());
  return f(TensorTiles<false>());
}

dim3 blocks_of(int64_t count) { return {unsigned((count + 255) / 256)}; }

__device__ inline int64_t this_thread() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }

// One thread per number of the tiles: [unit tile][gate][block][part][lane][numbers in 16 bytes].
template <class T>
__global__ void pack(int gates, int H, const T* w, int64_t depth, T zero, T* tiles, int64_t count) {
  const int64_t n = this_thread();
  if (n >= count) return;
  const int64_t block_numbers = kDepthBlock * kUnits;
  const int at = int(n % block_numbers);
  const int64_t block = n / block_numbers % depth_blocks(H),
                tile = n / block_numbers / depth_blocks(H);
  constexpr int kEach = 16 / sizeof(T);
  const int lane = at / kEach % 32, e = at / (kEach * 32) * kEach + at % kEach;
  int unit, k;
  if constexpr (sizeof(T) == 4) {
    FloatTiles::place(lane, e, &unit, &k);
  } else {
    TensorTiles<sizeof(T) == 1>::place(lane, e, &unit, &k);
  }
  const int64_t u = tile / gates * kUnits + unit, from = block * kDepthBlock + k;
  tiles[n] = u < H && from < H ? w[(tile % gates * H + u) * depth + from] : zero;
}

__global__ void copy_vectors(const uint4* from, uint4* to, int64_t count) {
  const int64_t n = this_thread();
  if (n < count) to[n] = from[n];
}

template <class T>
__device__ inline T converted(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 converted(float x) {
  return __float2bfloat16_rn(x);
}

template <class T>
__global__ void encode_states(const CellArguments a, const Rows rows, int64_t count) {
  const int64_t n = this_thread();
  if (n >= count) return;
  const int64_t stream = n / a.H, unit = n % a.H;
  static_cast<T*>(a.y)[stream * a.y_stride + unit] =
      converted<T>(rows.from[stream][a.at[0] + unit]);
}

template <class T>
__global__ void encode_inputs(const float* values, int64_t width, T* x, int64_t stride,
                              int64_t count) {
  const int64_t n = this_thread();
  if (n >= count) return;
  const int64_t row = n / stride, column = n % stride;
  x[n] = converted<T>(column < width ? values[row * width + column] : 0.0f);
}

__global__ void gather(const float* table, const int32_t* index, int64_t width, float* out,
                       int64_t count) {
  const int64_t n = this_thread();
  if (n < count) out[n] = table[index[n / width] * width + n % width];
}

// One block per row: finds the largest logit, then the sum of exp; each thread works in a fixed
// order.
__global__ void __launch_bounds__(256)
    row_log_probs(const float* logits, const int32_t* tokens, int64_t width, float* out) {
  __shared__ float shared[256];
  const float* x = logits + int64_t(blockIdx.x) * width;
  const auto reduced = [&](float value, auto f) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
      if (threadIdx.x < half)
        shared[threadIdx.x] = f(shared[threadIdx.x], shared[threadIdx.x + half]);
      __syncthreads();
    }
    const float all = shared[0];
    __syncthreads();
    return all;
  };
  float most = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += 256) most = fmaxf(most, x[i]);
  most = reduced(most, [](float a, float b) { return fmaxf(a, b); });
  for (int64_t i = threadIdx.x; i < width; i += 256) sum += expf(x[i] - most);
  sum = reduced(sum, [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) out[blockIdx.x] = x[tokens[blockIdx.x]] - most - logf(sum);
}

}  // namespace

const CudaCell* find_cuda_cell(unsigned long long hash) {
#define TSM_LOOK(cell) \
  if (k_##cell.hash == hash) return &k_##cell;
  TSM_FOR_EACH_CELL(TSM_LOOK)
#undef TSM_LOOK
  return nullptr;
}

int64_t tiles_bytes(Weights kind, int gates, int H) {
  return with_tiles(
      kind, [&](auto tiles) { return decltype(tiles)::tile_bytes(H) * gates * unit_tiles(H); });
}

void pack_tiles(Weights kind, int gates, int H, const void* w, int64_t depth, void* tiles,
                void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const int64_t count = int64_t(depth_blocks(H)) * kDepthBlock * kUnits * gates * unit_tiles(H);
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    pack<<<blocks_of(count), 256, 0, on>>>(gates, H, static_cast<const T*>(w), depth, zero,
                                           static_cast<T*>(tiles), count);
  };
  if (kind == Weights::kFloat32) {
    run(0.0f);
  } else if (kind == Weights::kInt8) {
    run(uint8_t(128));
  } else {
    run(uint16_t(0));
  }
  check(cudaGetLastError(), "packing U");
}

RecurrencePlan plan_recurrence(Weights kind, int gates, int H, int streams, int processors,
                               int shared_limit) {
  RecurrencePlan plan{};
  const int all = unit_tiles(H);
  plan.unit_tiles = (all + processors - 1) / processors;
  plan.members = (all + plan.unit_tiles - 1) / plan.unit_tiles;
  const int groups = (streams + kGroup - 1) / kGroup;
  plan.teams = std::max(1, std::min(processors / plan.members, groups));
  plan.team_streams = (groups + plan.teams - 1) / plan.teams * kGroup;
  plan.teams = (groups * kGroup + plan.team_streams - 1) / plan.team_streams;
  const int64_t sums = int64_t(2) * kWarps * gates * kPart * 4;
  const int64_t tile = with_tiles(kind, [&](auto tiles) { return decltype(tiles)::tile_bytes(H); });
  const int64_t room = std::max<int64_t>(0, (shared_limit - sums) / tile);
  plan.shared_tiles = int(std::min<int64_t>(room, int64_t(plan.unit_tiles) * gates));
  plan.shared_bytes = int(plan.shared_tiles * tile + sums);
  plan.shared_limit = shared_limit;
  return plan;
}

int64_t exchange_words(Weights kind, int H, int streams) {
  return with_tiles(kind,
                    [&](auto tiles) { return int64_t(2) * streams * decltype(tiles)::words(H); });
}

void send_small(const void* from, void* to, int64_t bytes, void* stream) {
  const int64_t count = bytes / 16;
  constexpr int kThreads = 64;  // few, so that many multiprocessors read at the same time
  copy_vectors<<<unsigned((count + kThreads - 1) / kThreads), kThreads, 0,
                 static_cast<cudaStream_t>(stream)>>>(static_cast<const uint4*>(from),
                                                      static_cast<uint4*>(to), count);
  check(cudaGetLastError(), "a copy to the device");
}

void encode_h(Weights kind, const CellArguments& layer, const Rows& rows, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const int64_t count = int64_t(rows.streams) * layer.H;
  if (count == 0) return;
  kind == Weights::kFloat32
      ? encode_states<float><<<blocks_of(count), 256, 0, on>>>(layer, rows, count)
      : encode_states<__nv_bfloat16><<<blocks_of(count), 256, 0, on>>>(layer, rows, count);
  check(cudaGetLastError(), "reading states");
}

void encode_values(Weights kind, const float* values, int64_t rows, int64_t width, void* x,
                   int64_t stride, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const int64_t count = rows * stride;
  if (count == 0) return;
  kind == Weights::kFloat32 ? encode_inputs<<<blocks_of(count), 256, 0, on>>>(
                                  values, width, static_cast<float*>(x), stride, count)
                            : encode_inputs<<<blocks_of(count), 256, 0, on>>>(
                                  values, width, static_cast<__nv_bfloat16*>(x), stride, count);
  check(cudaGetLastError(), "reading inputs");
}

void gather_rows(const float* table, const int32_t* index, int64_t rows, int64_t width, float* out,
                 void* stream) {
  const int64_t count = rows * width;
  if (count == 0) return;
  gather<<<blocks_of(count), 256, 0, static_cast<cudaStream_t>(stream)>>>(table, index, width, out,
                                                                          count);
  check(cudaGetLastError(), "reading columns");
}

void log_probs(const float* logits, const int32_t* tokens, int64_t rows, int64_t width, float* out,
               void* stream) {
  if (rows == 0) return;
  row_log_probs<<<unsigned(rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(logits, tokens,
                                                                               width, out);
  check(cudaGetLastError(), "log-probabilities");
}

}  // namespace tsm::cuda
