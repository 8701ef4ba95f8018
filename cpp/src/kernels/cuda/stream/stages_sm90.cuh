// How a block of many_streams_sm90.cuh loads x, h and weights: one thread fills stages of shared
// memory ahead of the two warp groups that multiply them.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/stream/many_streams_sm90.h"
#include "kernels/cuda/stream/wgmma_sm90.cuh"

namespace tsm::cuda {

constexpr int kCluster = 2, kGroups = 2;

// Barriers of the stages. They order asynchronous copies and completed reads, never ordinary
// stores. A wider scope than the default would add a device-wide fence and an L1 invalidation,
// which cost more than the products.
__device__ inline void wait_for(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Arrives at the same barrier of block `rank` of the cluster.
__device__ inline void arrive_at(uint64_t* barrier, int rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(ptx::in_member(barrier, rank))
               : "memory");
}
// Copies to the same address in all blocks of `mask`.
__device__ inline void copy_to_all(void* to, const void* from, uint32_t bytes, uint64_t* barrier,
                                   uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"(mask)
      : "memory");
}

template <class Cell>
struct StepShape {
  static constexpr int G = Cell::kGates, kUnits = step_units(G), kOutputs = G * kUnits;
  static constexpr int kPairs = kUnits / 8;  // of units, per thread
  static constexpr uint32_t kRowBytes = kStepRows * 128, kWeightBytes = kOutputs * 128;
  static constexpr uint32_t kStage = kRowBytes + kWeightBytes;
  static constexpr int kStages = kStage <= 40 << 10 ? 5 : 4;
  static constexpr int kShared = kStages * kStage + 1024;  // for alignment to 1024 bytes
};

// The stages of a block, and the current one. Weights for both blocks of a cluster are copied once
// the stage is empty in both.
template <class Shape>
struct Stages {
  char* memory;
  uint64_t *full, *empty;
  int stage = 0;
  uint32_t parity = 0;

  __device__ char* rows() const { return memory + stage * Shape::kStage; }
  __device__ char* weights() const { return rows() + Shape::kRowBytes; }
  __device__ void next() {
    if (++stage < Shape::kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// A launch for steps begin .. end of some row tiles.
struct StepsLaunch {
  StepsSm90 all;
  int begin, end;
  int first_tile, tiles;
  int groups;  // blocks that write h of one row tile

  // The number of streams with input left after step t, within this launch.
  __device__ int active_after(int t) const { return t + 1 < end ? all.rows.active[t + 1] : 0; }
};

__device__ inline void wait_until_ready(const uint32_t* h_ready, uint32_t wanted) {
  while (ptx::peek(h_ready) < wanted) {
  }
  ptx::acquire();
  ptx::proxy_fence();
}

// Run by one thread: issues all copies.
template <class Cell>
__device__ inline void load_stages(const StepsLaunch& a, Stages<StepShape<Cell>> stages) {
  using Shape = StepShape<Cell>;
  constexpr uint32_t kPart = Shape::kWeightBytes / kCluster;
  const int rank = blockIdx.x % kCluster, blocks = a.all.x_blocks + a.all.h_blocks;
  const int first_stream = (a.first_tile + int(blockIdx.x) - rank) * kStepRows;  // of the cluster
  // A block past the last row tile still loads weights for its cluster; instead of its own rows it
  // reads those of the last tile.
  const int64_t tile = a.first_tile + min(int(blockIdx.x), a.tiles - 1);
  const char* weights = static_cast<const char*>(a.all.weights) +
                        int64_t(blockIdx.y) * blocks * Shape::kWeightBytes + rank * kPart;
  for (int t = a.begin;; ++t) {
    const int next = a.active_after(t);
    const char* x = static_cast<const char*>(a.all.x) + t * a.all.x_step +
                    tile * a.all.x_blocks * Shape::kRowBytes;
    const char* h = static_cast<const char*>(a.all.h) + t * a.all.h_step +
                    tile * a.all.h_blocks * Shape::kRowBytes;
    for (int k = 0; k < blocks; ++k, stages.next()) {
      if (k == a.all.x_blocks && t > a.begin)
        wait_until_ready(a.all.h_ready + tile, uint32_t(t - a.begin) * a.groups);
      uint64_t* const full = stages.full + stages.stage;
      wait_for(stages.empty + stages.stage, stages.parity ^ 1);
      ptx::barrier_expect(full, Shape::kStage);
      const char* rows = k < a.all.x_blocks ? x + int64_t(k) * Shape::kRowBytes
                                            : h + int64_t(k - a.all.x_blocks) * Shape::kRowBytes;
      ptx::copy_from_global(stages.rows(), rows, Shape::kRowBytes, full);
      copy_to_all(stages.weights() + rank * kPart, weights + int64_t(k) * Shape::kWeightBytes,
                  kPart, full, uint16_t((1 << kCluster) - 1));
    }
    if (next <= first_stream) break;
  }
}

// Run by a warp group: sum += rows x weights over all blocks of depth.
template <class Shape>
__device__ inline void multiply_blocks(int group, int blocks, Stages<Shape>& stages,
                                       float (&sum)[Shape::kOutputs / 2]) {
  const int thread = threadIdx.x % 128;
  for (int k = 0; k < blocks; ++k, stages.next()) {
    wait_for(stages.full + stages.stage, stages.parity);
    const uint64_t rows = swizzled(shared_address(stages.rows()) + group * 64 * 128);
    const uint64_t weights = swizzled(shared_address(stages.weights()));
    begin_products();
#pragma unroll
    for (int i = 0; i < kStepDepth / 16; ++i) multiply(sum, rows + 2 * i, weights + 2 * i);
    commit_products();
    wait_products();  // meanwhile the other group multiplies
    if (thread < kCluster) arrive_at(stages.empty + stages.stage, thread);
  }
}

}  // namespace tsm::cuda
