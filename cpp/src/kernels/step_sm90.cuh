// The kernel of step_sm90.h.
//
// A block computes 128 streams x all gates of its units. One thread has the copies made, kStages
// ahead; two warp groups multiply, 64 streams each, and then apply the cell to what they hold: a
// thread has all gates of its units. Two blocks of one cluster work on the same units: each brings
// half of their weights, for both. A launch begins while the step before still runs: until it needs
// h it multiplies x.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cell_floats.cuh"
#include "kernels/check_cuda.h"
#include "kernels/step_sm90.h"
#include "kernels/wgmma_sm90.cuh"

namespace tsm::cuda {

constexpr int kCluster = 2, kGroups = 2, kStepThreads = (4 * kGroups + 1) * 32;

__device__ inline uint32_t address_of(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}
__device__ inline void init_barrier(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void wait_for(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// At the same barrier of block `rank` of the cluster.
__device__ inline void arrive_at(uint32_t barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ inline void copy_block(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// To the same place of all blocks in `mask`.
__device__ inline void copy_to_all(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                                   uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(mask)
      : "memory");
}
// Until all of the launch before is done and seen; and that the launch after may begin.
__device__ inline void wait_for_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void let_next_launch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

template <class Cell>
struct StepShape {
  static constexpr int G = Cell::kGates, kUnits = step_units(G), kOutputs = G * kUnits;
  static constexpr uint32_t kRowBytes = kStepRows * 128, kWeightBytes = kOutputs * 128;
  static constexpr uint32_t kStage = kRowBytes + kWeightBytes;
  static constexpr int kStages = kStage <= 40 << 10 ? 5 : 4;
  static constexpr int kShared = kStages * kStage + 1024;  // to begin at a 1024-byte boundary
};

// One of a thread's two streams: where its states are. A stream that is not there reads those of
// the last one, and writes nothing.
struct StepRow {
  bool there, keeps_h;
  int in_tile;
  int64_t row;
  const float* from;
  float* to;
  float dt;
};

// What the cell reads of two neighbouring units.
template <class Cell>
__device__ inline void load_states(const CellLayer& a, const float* states, int unit,
                                   float2 (&s)[Cell::kStates]) {
#pragma unroll
  for (int i = 0; i < Cell::kStates; ++i) {
    s[i] = {0, 0};
    if (Cell::kReads >> i & 1) s[i] = *reinterpret_cast<const float2*>(states + a.at[i] + unit);
  }
}

template <class Cell>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kStepThreads, 1)
    step_sm90(const StepSm90 a) {
  using Shape = StepShape<Cell>;
  constexpr int G = Cell::kGates, S = Cell::kStates, Q = Cell::kPrepared;
  constexpr int kStages = Shape::kStages;
  extern __shared__ char memory[];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
  const uint32_t base = (address_of(memory) + 1023) & ~1023u;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = blockIdx.x % kCluster;
  const int blocks = a.x_blocks + a.h_blocks;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(address_of(&full[i]), 1);
      init_barrier(address_of(&empty[i]), kGroups * kCluster);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  sync_cluster();

  if (warp == 4 * kGroups) {
    if (lane == 0) {
      constexpr uint32_t kHalf = Shape::kWeightBytes / kCluster;
      // A cluster past the last rows still brings weights; the rows that it reads are the last.
      const int64_t tile = min(int(blockIdx.x), a.tiles - 1);
      const char* x = static_cast<const char*>(a.x) + tile * a.x_blocks * Shape::kRowBytes;
      const char* h = static_cast<const char*>(a.h) + tile * a.h_blocks * Shape::kRowBytes;
      const char* weights = static_cast<const char*>(a.weights) +
                            int64_t(blockIdx.y) * blocks * Shape::kWeightBytes + rank * kHalf;
      for (int k = 0; k < blocks; ++k) {
        const int stage = k % kStages;
        const uint32_t to = base + stage * Shape::kStage, barrier = address_of(&full[stage]);
        if (k == a.x_blocks) {  // h, unlike x and weights, is of the launch before
          wait_for_launch();
          let_next_launch();
        }
        wait_for(address_of(&empty[stage]), (k / kStages & 1) ^ 1);
        expect_bytes(barrier, Shape::kStage);
        const char* rows = k < a.x_blocks ? x + int64_t(k) * Shape::kRowBytes
                                          : h + int64_t(k - a.x_blocks) * Shape::kRowBytes;
        copy_block(to, rows, Shape::kRowBytes, barrier);
        copy_to_all(to + Shape::kRowBytes + rank * kHalf,
                    weights + int64_t(k) * Shape::kWeightBytes, kHalf, barrier,
                    uint16_t((1 << kCluster) - 1));
      }
    }
  } else {
    constexpr int kSteps = Shape::kUnits / 8;  // pairs of units of a thread
    const int group = warp / 4, first_unit = blockIdx.y * Shape::kUnits + lane % 4 * 2;
    StepRow mine[2];
    float sum[Shape::kOutputs / 2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      StepRow& r = mine[half];
      r.in_tile = group * 64 + warp % 4 * 16 + half * 8 + lane / 4;
      r.there = blockIdx.x * kStepRows + r.in_tile < a.active;
      const int stream = min(int(blockIdx.x) * kStepRows + r.in_tile, a.active - 1);
      r.keeps_h = (Cell::kReads & 1) || stream >= a.next;
      r.row = a.rows.first[a.t] + stream;
      r.to = a.rows.to[stream];
      r.from = a.t == 0 ? a.rows.from[stream] : r.to;
      r.dt = Cell::kTakesDt && a.rows.dt ? a.rows.dt[r.row] : 1.0f;
      const float* start = a.start + (a.index ? int64_t(a.index[r.row]) * G * a.layer.H : 0);
#pragma unroll
      for (int i = 0; i < G * kSteps; ++i) {
        const float* of_gate = start + i / kSteps * int64_t(a.layer.H);
#pragma unroll
        for (int e = 0; e < 2; ++e)
          sum[i * 4 + half * 2 + e] = of_gate[min(first_unit + i % kSteps * 8 + e, a.layer.H - 1)];
      }
    }
    for (int k = 0; k < blocks; ++k) {
      const int stage = k % kStages;
      wait_for(address_of(&full[stage]), k / kStages & 1);
      const uint32_t rows = base + stage * Shape::kStage;
      const uint64_t of_rows = swizzled(rows + group * 64 * 128);
      const uint64_t of_weights = swizzled(rows + Shape::kRowBytes);
      begin_products();
#pragma unroll
      for (int i = 0; i < kStepDepth / 16; ++i) multiply(sum, of_rows + 2 * i, of_weights + 2 * i);
      commit_products();
      wait_products();  // meanwhile the other group multiplies
      if (threadIdx.x % 128 < kCluster) arrive_at(address_of(&empty[stage]), threadIdx.x % 128);
    }
    wait_for_launch();  // for the states
    float2 now[2][S], next[2][S];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      load_states<Cell>(a.layer, mine[half].from, min(first_unit, a.layer.H - 1) & ~1, next[half]);

    float probe[2][S] = {};  // no number where a state is none
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      const int unit = first_unit + j * 8;
      float q[2][Q > 0 ? Q : 1] = {}, out[2][2][S];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < S; ++i) now[half][i] = next[half][i];
        if (j + 1 < kSteps)  // while this one is computed
          load_states<Cell>(a.layer, mine[half].from, min(unit + 8, a.layer.H - 1) & ~1,
                            next[half]);
      }
#pragma unroll
      for (int i = 0; i < 2 * Q; ++i)
        q[i % 2][i / 2] =
            __ldg(a.layer.prepared + i / 2 * int64_t(a.layer.H) + min(unit + i % 2, a.layer.H - 1));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float z[G], s[S];
#pragma unroll
          for (int g = 0; g < G; ++g) z[g] = sum[(g * kSteps + j) * 4 + half * 2 + e];
#pragma unroll
          for (int i = 0; i < S; ++i) s[i] = e == 0 ? now[half][i].x : now[half][i].y;
          step_floats<Cell, FastCuda>(z, s, q[e], a.layer.constants, mine[half].dt, out[half][e]);
#pragma unroll
          for (int i = 0; i < S; ++i) probe[half][i] = fmaf(out[half][e][i], 0.0f, probe[half][i]);
        }
      }
      // Past an odd H lies padding, which nobody reads but times 0.
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const StepRow& r = mine[half];
        if (!r.there || unit >= a.layer.H) continue;
#pragma unroll
        for (int i = 0; i < S; ++i) {
          if (i > 0 || r.keeps_h)
            *reinterpret_cast<float2*>(r.to + a.layer.at[i] + unit) = {out[half][0][i],
                                                                       out[half][1][i]};
        }
        const __nv_bfloat162 h = __floats2bfloat162_rn(out[half][0][0], out[half][1][0]);
        const int column = unit % kStepDepth, piece = column / 8 ^ (r.in_tile & 7);
        const int64_t block = int64_t(blockIdx.x) * a.h_blocks + unit / kStepDepth;
        *reinterpret_cast<__nv_bfloat162*>(static_cast<char*>(a.h_next) + block * Shape::kRowBytes +
                                           r.in_tile * 128 + piece * 16 + column % 8 * 2) = h;
        if (a.plain)
          *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(a.layer.y) +
                                             (a.rows.streams + r.row) * a.layer.y_stride + unit) =
              h;
      }
    }
#pragma unroll
    for (int i = 0; i < 2 * S; ++i) {
      if (mine[i % 2].there && !(probe[i % 2][i / 2] == 0)) *a.layer.bad = i / 2;
    }
  }
  __syncwarp();
  sync_cluster();  // nobody leaves while the other may still write to it
}

template <class Cell>
void run_step_sm90(const StepSm90& a, void* stream) {
  using Shape = StepShape<Cell>;
  static const cudaError_t allowed = cudaFuncSetAttribute(
      step_sm90<Cell>, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kShared);
  check(allowed, "shared memory of a step");
  const int tiles = (a.tiles + kCluster - 1) / kCluster * kCluster;
  const dim3 grid(unsigned(tiles), unsigned((a.layer.H + Shape::kUnits - 1) / Shape::kUnits));
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(kStepThreads);
  config.dynamicSmemBytes = Shape::kShared;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = a.t > 0 ? 1 : 0;  // before the first there is no step
  check(cudaLaunchKernelEx(&config, step_sm90<Cell>, a), "a step");
}

}  // namespace tsm::cuda
