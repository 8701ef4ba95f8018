// A cell on a GPU: the element-wise step of many streams, and the recurrence of a few in one
// launch.
#pragma once
#include <cuda_runtime.h>

#include "kernels/cuda/cell_step.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/stream/stream.h"
#include "kernels/cuda/stream/weight_tiles.cuh"

namespace tsm::cuda {

// One unit of one stream at one step.
template <class Cell, class M>
struct Unit {
  static constexpr int G = Cell::kGates, S = Cell::kStates, Q = Cell::kPrepared;
  static constexpr int kQ = Q > 0 ? Q : 1;
  float z[G], s[S], q[kQ] = {}, dt = 1;

  __device__ void load(const CellArguments& a, const Rows& rows, const float* z_row, int t,
                       int stream, int64_t row, int unit) {
#pragma unroll
    for (int i = 0; i < G; ++i) z[i] = z_row[i * int64_t(a.H) + unit];
    const float* states = t == 0 ? rows.from[stream] : rows.to[stream];
#pragma unroll
    for (int i = 0; i < S; ++i) s[i] = states[a.at[i] + unit];
#pragma unroll
    for (int i = 0; i < Q; ++i) q[i] = a.prepared[i * int64_t(a.H) + unit];
    if (Cell::kTakesDt && rows.dt) dt = rows.dt[row];
  }

  // Computes and stores the new states; returns h.
  __device__ float step(const CellArguments& a, const Rows& rows, int stream, int unit, int& bad) {
    float out[S];
    step_floats<Cell, M>(z, s, q, a.constants, dt, out);
    float* states = rows.to[stream];
#pragma unroll
    for (int i = 0; i < S; ++i) {
      states[a.at[i] + unit] = out[i];
      if (!isfinite(out[i])) bad = i;
    }
    return out[0];
  }
};

__device__ inline void store(float* to, float x) { *to = x; }
__device__ inline void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }

// z [active, G H] of step t.
template <class Cell, class Tiles>
__global__ void __launch_bounds__(128) cell_step(const CellStepCuda a) {
  const int unit = blockIdx.x * blockDim.x + threadIdx.x, stream = blockIdx.y;
  if (unit >= a.layer.H) return;
  const int64_t row = a.rows.first[a.t] + stream;
  Unit<Cell, typename Tiles::Math> u;
  u.load(a.layer, a.rows, a.z + int64_t(stream) * Cell::kGates * a.layer.H, a.t, stream, row, unit);
  int bad = -1;
  const float h = u.step(a.layer, a.rows, stream, unit, bad);
  auto* y = static_cast<typename Tiles::Activation*>(a.layer.y);
  store(y + (a.rows.streams + row) * a.layer.y_stride + unit, h);
  if (bad >= 0) *a.layer.bad = bad;
}

// A team of blocks takes its streams through all steps, 8 at a time: each block multiplies h with
// the weights of its own units, adds up the partial sums of its warps, applies the cell, and
// publishes h.
template <class Cell, class Tiles>
__global__ void __launch_bounds__(32 * kWarps, 1) recurrence(const RecurrenceCuda a) {
  constexpr int G = Cell::kGates;
  extern __shared__ __align__(128) char memory[];
  const int64_t tile_bytes = Tiles::tile_bytes(a.layer.H);
  const int rank = blockIdx.x % a.plan.members, team = blockIdx.x / a.plan.members;
  const int first_tile = rank * a.plan.unit_tiles;
  const int tiles = min(a.plan.unit_tiles, unit_tiles(a.layer.H) - first_tile);
  const int begin = team * a.plan.team_streams;
  const int end = min(a.rows.streams, begin + a.plan.team_streams);
  const char* far = static_cast<const char*>(a.tiles) + int64_t(first_tile) * G * tile_bytes;
  float* const parts = reinterpret_cast<float*>(memory + a.plan.shared_tiles * tile_bytes);

  const int shared_tiles = min(a.plan.shared_tiles, tiles * G);
  for (int64_t at = threadIdx.x * 16; at < shared_tiles * tile_bytes; at += blockDim.x * 16)
    copy_async(shared_address(memory + at), far + at);
  commit_copies();

  const int stride = Tiles::words(a.layer.H), warp = threadIdx.x / 32;
  uint2* const words = static_cast<uint2*>(a.exchange);
  const auto words_of = [&](int stream, int t) {
    return words + (int64_t(t & 1) * a.rows.streams + stream) * stride;
  };
  // This thread's stream (of 8) and unit (of a tile).
  const int my_unit = threadIdx.x % kUnits, my_stream = threadIdx.x / kUnits;
  const bool works = my_stream < kGroup;  // whole warps
  int bad = -1;
  const uint32_t tag = *a.tag + a.tags_before;

  if (works) {
    for (int stream = begin + my_stream; stream - my_stream < end; stream += kGroup) {
      for (int tile = 0; tile < tiles; ++tile) {
        const int unit = (first_tile + tile) * kUnits + my_unit;
        const bool there = stream < end && unit < a.layer.H;
        const float h = there ? a.rows.from[stream][a.layer.at[0] + unit] : 0.0f;
        Tiles::publish(words_of(stream, 0), unit, h, tag, stream < end);
      }
    }
  }
  wait_copies<0>();
  __syncthreads();

  int turn = 0;  // selects one of two buffers for sums
  for (int t = 0; t < a.rows.steps; ++t) {
    const int active = min(a.rows.active[t], end);
    if (active <= begin) break;
    for (int group = begin; group < active; group += kGroup) {
      for (int tile = 0; tile < tiles; ++tile, turn ^= 1) {
        const int unit = (first_tile + tile) * kUnits + my_unit, stream = group + my_stream;
        const int64_t row = a.rows.first[t] + stream;
        const bool mine = works && stream < active && unit < a.layer.H;
        Unit<Cell, typename Tiles::Math> u;
        if (mine) {  // early, so that the product hides the latency
          const int64_t z_row = a.z_index ? a.z_index[row] : row;
          u.load(a.layer, a.rows, a.z + z_row * G * a.layer.H, t, stream, row, unit);
        }
        float* const sums = parts + turn * kWarps * G * kPart;
        const ProductShare share{memory,    far,
                                 tile * G,  shared_tiles,
                                 a.layer.H, words_of(group, t),
                                 stride,    min(kGroup, active - group),
                                 tag + t};
        Tiles::template product<G>(share, sums + warp * G * kPart);
        __syncthreads();
        if (!works) continue;
        float h = 0;
        if (mine) {
#pragma unroll
          for (int g = 0; g < G; ++g) {
            float sum = 0;
#pragma unroll
            for (int w = 0; w < kWarps; ++w)
              sum += sums[(w * G + g) * kPart + my_stream * kPartStride + my_unit];
            if (Tiles::kScaled) sum *= a.scale[g * int64_t(a.layer.H) + unit];
            u.z[g] += sum;
          }
          h = u.step(a.layer, a.rows, stream, unit, bad);
        }
        // Units past H publish zeros, because other blocks wait for their words.
        if (t + 1 < a.rows.steps)
          Tiles::publish(words_of(stream, t + 1), unit, h, tag + t + 1, stream < active);
        if (mine) {
          auto* y = static_cast<typename Tiles::Activation*>(a.layer.y);
          store(y + (a.rows.streams + row) * a.layer.y_stride + unit, h);
        }
      }
    }
  }
  if (bad >= 0) *a.layer.bad = bad;
}

template <class Cell, class Tiles>
void run_step(const CellStepCuda& a, cudaStream_t stream) {
  constexpr int kThreads = 128;
  const dim3 blocks(unsigned(a.layer.H + kThreads - 1) / kThreads, unsigned(a.active));
  cell_step<Cell, Tiles><<<blocks, kThreads, 0, stream>>>(a);
  check(cudaGetLastError(), "a step");
}

template <class Cell, class Tiles>
void run_recurrence(const RecurrenceCuda& a, cudaStream_t stream) {
  const auto kernel = recurrence<Cell, Tiles>;
  static const cudaError_t allowed = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, a.plan.shared_limit);
  check(allowed, "shared memory of a recurrence");
  void* args[] = {const_cast<RecurrenceCuda*>(&a)};
  // A cooperative launch: blocks wait for each other, so all of them must run at once.
  check(cudaLaunchCooperativeKernel(kernel, dim3(unsigned(a.plan.members * a.plan.teams)),
                                    dim3(32 * kWarps), args, size_t(a.plan.shared_bytes), stream),
        "a recurrence");
}

template <class Cell>
void step_of_kind(Weights kind, const CellStepCuda& a, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  kind == Weights::kFloat32 ? run_step<Cell, FloatTiles>(a, on)
                            : run_step<Cell, TensorTiles<false>>(a, on);
}

template <class Cell>
void recurrence_of_kind(Weights kind, const RecurrenceCuda& a, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (kind == Weights::kFloat32) return run_recurrence<Cell, FloatTiles>(a, on);
  if (kind == Weights::kInt8) return run_recurrence<Cell, TensorTiles<true>>(a, on);
  run_recurrence<Cell, TensorTiles<false>>(a, on);
}

template <class Cell>
constexpr CudaCell cuda_cell() {
  static_assert(Cell::kStates <= kMostCellStates && Cell::kConstants <= kMostCellConstants);
  return {CellInfo::of<Cell>(), step_of_kind<Cell>, recurrence_of_kind<Cell>};
}

}  // namespace tsm::cuda
