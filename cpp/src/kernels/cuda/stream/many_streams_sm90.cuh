// The kernel of many_streams_sm90.h.
//
// A block computes all gates of its units for 128 streams, step by step. One thread issues the
// copies, kStages ahead. Two warp groups multiply, 64 streams each, and then apply the cell to
// their accumulators: a thread has all gates of its units, and keeps their states in registers. The
// two blocks of a cluster work on the same units, and each loads half of the weights for both.
// Blocks with the same streams signal each other when h of a step is written. While a block waits
// for these signals, it multiplies x of the next step.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/cell_step.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/stream/stages_sm90.cuh"

namespace tsm::cuda {

constexpr int kStepThreads = (kGroups + 1) * 128;  // the last group loads

// Sets the number of registers per thread of a warp group: one group releases registers that others
// take.
template <int N>
__device__ inline void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// The states that a thread keeps in registers: those of two streams, in pairs of units.
template <class Cell>
struct Held {
  static constexpr int kPairs = StepShape<Cell>::kPairs;
  // The number of states before `state` that the cell reads. Computed without a loop, so that the
  // compiler folds it early.
  __host__ __device__ static constexpr int before(int state) {
    const unsigned read = Cell::kReads & ((1u << state) - 1), pairs = read - (read >> 1 & 0x55);
    const unsigned fours = (pairs & 0x33) + (pairs >> 2 & 0x33);
    return int((fours + (fours >> 4)) & 0xf);
  }
  static constexpr int kCount = before(Cell::kStates);
  float2 value[2][kPairs][kCount > 0 ? kCount : 1];

  __device__ void load(const CellArguments& a, const float* states, int half, int first_unit) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int unit = min(first_unit + j * 8, a.H - 1) & ~1;
#pragma unroll
      for (int i = 0; i < Cell::kStates; ++i) {
        if (Cell::kReads >> i & 1)
          value[half][j][before(i)] = *reinterpret_cast<const float2*>(states + a.at[i] + unit);
      }
    }
  }
};

// One of a thread's two streams in one step. A missing or finished stream is computed like the
// others, but nothing is written for it.
struct StepRow {
  bool there, ends;
  int64_t row;
  float dt;
};

// Initializes the sums: with columns of the table, or zeros.
template <class Shape>
__device__ inline void start_sums(const StepsSm90& a, const StepRow (&mine)[2], int first_unit,
                                  float (&sum)[Shape::kOutputs / 2]) {
  constexpr int kPairs = Shape::kPairs;
#pragma unroll
  for (int i = 0; i < Shape::kOutputs / 2; ++i) sum[i] = 0;
  if (!a.table) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* start = a.table + int64_t(a.index[mine[half].row]) * Shape::G * a.layer.H;
#pragma unroll
    for (int i = 0; i < Shape::G * kPairs; ++i) {
      const float* of_gate = start + i / kPairs * int64_t(a.layer.H);
#pragma unroll
      for (int e = 0; e < 2; ++e)
        sum[i * 4 + half * 2 + e] = of_gate[min(first_unit + i % kPairs * 8 + e, a.layer.H - 1)];
    }
  }
}

// Bias and prepared vectors of a block's units, in shared memory.
template <class Cell>
struct Fixed {
  float2 bias[Cell::kGates][StepShape<Cell>::kUnits / 2];
  float2 prepared[Cell::kPrepared > 0 ? Cell::kPrepared : 1][StepShape<Cell>::kUnits / 2];

  __device__ void load(const StepsSm90& a, int unit, int thread, int threads) {
    constexpr int kUnits = StepShape<Cell>::kUnits;
    for (int i = thread; i < (Cell::kGates + Cell::kPrepared) * kUnits; i += threads) {
      const int row = i / kUnits, from = min(unit + i % kUnits, a.layer.H - 1);
      if (row >= Cell::kGates) {
        reinterpret_cast<float*>(prepared)[i - Cell::kGates * kUnits] =
            a.layer.prepared[(row - Cell::kGates) * int64_t(a.layer.H) + from];
      } else {
        reinterpret_cast<float*>(bias)[i] = a.bias ? a.bias[row * int64_t(a.layer.H) + from] : 0;
      }
    }
  }
};

__device__ inline float half_of(float2 two, int which) { return which == 0 ? two.x : two.y; }

// Applies the cell to all units of a thread: updates the states, and writes h for the next step and
// for y.
template <class Cell>
__device__ inline void apply_cell(const StepsSm90& a, int t, int64_t tile, int in_tile,
                                  const StepRow (&mine)[2], const Fixed<Cell>& fixed,
                                  const float (&sum)[StepShape<Cell>::kOutputs / 2],
                                  Held<Cell>& held) {
  using Shape = StepShape<Cell>;
  constexpr int G = Cell::kGates, S = Cell::kStates, Q = Cell::kPrepared, kPairs = Shape::kPairs;
  const int lane = threadIdx.x % 32, column = lane % 4;  // of pairs
  const int block_unit = blockIdx.y * Shape::kUnits, first_vector = block_unit % kStepDepth / 8;
  // The thread's position in a vector of its first row. Vectors are swizzled by row % 8.
  char* const h_next = static_cast<char*>(a.h) + (t + 1) * a.h_step +
                       (tile * a.h_blocks + block_unit / kStepDepth) * Shape::kRowBytes +
                       in_tile * 128 + column * 4;
  __nv_bfloat16* const y = static_cast<__nv_bfloat16*>(a.layer.y) + block_unit + column * 2;
  float probe[2][S] = {};  // NaN if a state is not finite
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int pair = j * 4 + column, unit = block_unit + pair * 2;
    float out[2][2][S];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float z[G], s[S], q[Q > 0 ? Q : 1] = {};
#pragma unroll
        for (int g = 0; g < G; ++g)
          z[g] = sum[(g * kPairs + j) * 4 + half * 2 + e] + half_of(fixed.bias[g][pair], e);
#pragma unroll
        for (int i = 0; i < S; ++i)
          s[i] = Cell::kReads >> i & 1 ? half_of(held.value[half][j][Held<Cell>::before(i)], e) : 0;
#pragma unroll
        for (int i = 0; i < Q; ++i) q[i] = half_of(fixed.prepared[i][pair], e);
        step_floats<Cell, FastCuda>(z, s, q, a.layer.constants, mine[half].dt, out[half][e]);
#pragma unroll
        for (int i = 0; i < S; ++i) probe[half][i] = fmaf(out[half][e][i], 0.0f, probe[half][i]);
      }
#pragma unroll
      for (int i = 0; i < S; ++i) {
        if (Cell::kReads >> i & 1)
          held.value[half][j][Held<Cell>::before(i)] = {out[half][0][i], out[half][1][i]};
      }
    }
    // After an odd H comes padding, which is only ever multiplied by 0.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const StepRow& r = mine[half];
      if (!r.there || unit >= a.layer.H) continue;
      const __nv_bfloat162 h = __floats2bfloat162_rn(out[half][0][0], out[half][1][0]);
      *reinterpret_cast<__nv_bfloat162*>(h_next + half * 8 * 128 +
                                         ((first_vector + j) ^ (lane / 4)) * 16) = h;
      if (a.plain)
        *reinterpret_cast<__nv_bfloat162*>(y + (a.rows.streams + r.row) * a.layer.y_stride +
                                           j * 8) = h;
      if (!r.ends) continue;
      float* const to = a.rows.to[tile * kStepRows + in_tile + half * 8] + unit;
#pragma unroll
      for (int i = 0; i < S; ++i)
        *reinterpret_cast<float2*>(to + a.layer.at[i]) = {out[half][0][i], out[half][1][i]};
    }
  }
#pragma unroll
  for (int i = 0; i < 2 * S; ++i) {
    if (mine[i % 2].there && !(probe[i % 2][i / 2] == 0)) *a.layer.bad = i / 2;
  }
}

// Run by a warp group: takes its 64 streams through all steps.
template <class Cell>
__device__ inline void compute(const StepsLaunch& a, const Fixed<Cell>& fixed,
                               Stages<StepShape<Cell>> stages) {
  using Shape = StepShape<Cell>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;
  const int tile = a.first_tile + int(blockIdx.x);
  const int first_of_cluster = (tile - int(blockIdx.x) % kCluster) * kStepRows;
  const int in_tile = warp * 16 + lane / 4;  // row of the first stream; the second is 8 further
  const int first_unit = blockIdx.y * Shape::kUnits + lane % 4 * 2;
  const Rows& rows = a.all.rows;
  int active = rows.active[a.begin];
  Held<Cell> held;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int stream = min(tile * kStepRows + in_tile + half * 8, active - 1);
    held.load(a.all.layer, (a.begin == 0 ? rows.from : rows.to)[stream], half, first_unit);
  }
  for (int t = a.begin;; ++t) {
    const int next = a.active_after(t), first = rows.first[t];
    StepRow mine[2];
    float sum[Shape::kOutputs / 2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int stream = tile * kStepRows + in_tile + half * 8;
      StepRow& r = mine[half];
      r.there = stream < active;
      r.ends = stream >= next;
      r.row = first + min(stream, active - 1);
      r.dt = Cell::kTakesDt && rows.dt ? rows.dt[r.row] : 1.0f;
    }
    start_sums<Shape>(a.all, mine, first_unit, sum);
    multiply_blocks(group, a.all.x_blocks + a.all.h_blocks, stages, sum);
    apply_cell<Cell>(a.all, t, tile, in_tile, mine, fixed, sum, held);
    if (next <= first_of_cluster) break;
    ptx::sync(1 + group, 128);
    if (threadIdx.x % 128 == 0 && int(blockIdx.x) < a.tiles) ptx::add_release(a.all.h_ready + tile);
    active = next;
  }
}

template <class Cell>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kStepThreads, 1)
    steps_sm90(const __grid_constant__ StepsLaunch a) {
  using Shape = StepShape<Cell>;
  extern __shared__ char memory[];
  __shared__ Fixed<Cell> fixed;
  __shared__ __align__(8) uint64_t full[Shape::kStages], empty[Shape::kStages];
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      ptx::barrier_init(&full[i], 1);
      ptx::barrier_init(&empty[i], kGroups * kCluster);
    }
    ptx::barrier_init_fence();
  }
  fixed.load(a.all, blockIdx.y * Shape::kUnits, threadIdx.x, kStepThreads);
  ptx::cluster_sync();
  ptx::wait_for_previous();
  ptx::proxy_fence();  // the copies read what it has stored
  const uint32_t past = shared_address(memory) % 1024;
  const Stages<Shape> stages{memory + (past > 0 ? 1024 - past : 0), full, empty};
  if (threadIdx.x < 128 * kGroups) {
    take_registers<232>();
    compute<Cell>(a, fixed, stages);
  } else {
    leave_registers<40>();
    if (threadIdx.x == 128 * kGroups) load_stages<Cell>(a, stages);
  }
  __syncwarp();
  ptx::cluster_sync();  // no block exits while the other may still write to its shared memory
}

// Launches all steps of some row tiles, or a single step if the blocks cannot all run at the same
// time.
template <class Cell>
struct StepsLauncher {
  using Shape = StepShape<Cell>;
  const StepsSm90& all;
  cudaStream_t stream;

  unsigned unit_tiles() const {
    return unsigned((all.layer.H + Shape::kUnits - 1) / Shape::kUnits);
  }
  cudaLaunchConfig_t config(int tiles) const {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(unsigned((tiles + kCluster - 1) / kCluster * kCluster), unit_tiles());
    config.blockDim = dim3(kStepThreads);
    config.dynamicSmemBytes = Shape::kShared;
    config.stream = stream;
    return config;
  }
  // The number of row tiles whose blocks can run at the same time.
  int tiles_at_once() const {
    static const int clusters = [this] {
      int count = 0;
      const cudaLaunchConfig_t one = config(kCluster);
      check(cudaOccupancyMaxActiveClusters(&count, steps_sm90<Cell>, &one), "clusters of a step");
      return count;
    }();
    return clusters / int(unit_tiles()) * kCluster;
  }
  void launch(int begin, int end, int first_tile, int tiles) const {
    cudaLaunchConfig_t config = this->config(tiles);
    cudaLaunchAttribute how{};
    if (end - begin > 1) {
      how.id = cudaLaunchAttributeCooperative;
      how.val.cooperative = 1;
    } else if (all.rows.steps == 1) {  // follows block_slice directly
      how.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      how.val.programmaticStreamSerializationAllowed = 1;
    }
    config.attrs = &how;
    config.numAttrs = all.rows.steps == 1 || end - begin > 1 ? 1 : 0;
    const StepsLaunch a{all, begin, end, first_tile, tiles, int(unit_tiles()) * kGroups};
    check(cudaLaunchKernelEx(&config, steps_sm90<Cell>, a), "steps");
  }
};

template <class Cell>
void run_steps_sm90(const StepsSm90& a, void* stream) {
  static const cudaError_t allowed = cudaFuncSetAttribute(
      steps_sm90<Cell>, cudaFuncAttributeMaxDynamicSharedMemorySize, StepShape<Cell>::kShared);
  check(allowed, "shared memory of a step");
  const StepsLauncher<Cell> launcher{a, static_cast<cudaStream_t>(stream)};
  const int steps = a.rows.steps, at_once = steps > 1 ? launcher.tiles_at_once() : 0;
  if (at_once == 0) {
    for (int t = 0; t < steps; ++t) launcher.launch(t, t + 1, 0, int(row_tiles(a.active[t])));
    return;
  }
  const auto tiles = int(row_tiles(a.active[0]));
  for (int first = 0; first < tiles; first += at_once)
    launcher.launch(0, steps, first, std::min(at_once, tiles - first));
}

}  // namespace tsm::cuda
