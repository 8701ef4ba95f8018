// How one layer's recurrence is laid out on a GPU, and the product inside it.
//
// A *team* of thread blocks holds the recurrent matrix in its shared memories, each block the rows
// of its own units; every team takes its own rows of the batch through all steps. After each step
// the members exchange what the next product reads through L2: everyone writes its slice, raises
// its flag, and waits for the others' flags. A team of one needs no exchange.
//
// The product is out^T [units, rows] = A [units, K] x^T [K, rows] on tensor cores (m16n8k16, bf16
// in, float out). A unit tile is 16 units, a row tile 8 rows. Within 32 consecutive k the order is
// permuted, the same for A and x, so that a lane reads 8 consecutive numbers of x at once; within
// a unit tile units are permuted so that a lane holds neighbours (2i, 2i+1).
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace tsm::team {

constexpr int kUnitTile = 16, kRowTile = 8, kPair = 32;  // k of two mma tiles
constexpr int kChunk = 256;                              // k that are brought in together, at most
constexpr int kBuffers = 3;
constexpr int kMaxWarps = 16;

struct Plan {
  int members;     // blocks of a team
  int teams;       //
  int unit_tiles;  // of a block
  int rows;        // of a team, a multiple of kRowTile * row_tiles
  int row_tiles;   // of a warp: 1 or 2
  int row_groups;  // warps beside each other over rows
  int splits;      // warps beside each other over k; the first adds up
  int depth;       // K, padded to kPair a gate
  int chunk;       // k that are brought in together
  int64_t shared_bytes;
  int warps() const { return unit_tiles * row_groups * splits; }
};

__host__ __device__ inline int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// Bytes between two rows of a chunk in shared memory; 64 mod 128: no bank conflicts.
__host__ __device__ inline int chunk_stride(int chunk) {
  return chunk * 2 + (chunk * 2 % 128 == 64 ? 0 : 64);
}
// The same of a buffer that holds all of K.
__host__ __device__ inline int whole_stride(int depth) {
  return depth * 2 + (depth * 2 % 128 == 64 ? 0 : 64);
}

__device__ inline void mma(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ inline void copy_async(void* shared, const void* global) {
  const uint32_t to = uint32_t(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global));
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int N>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N));
}

__device__ inline void raise_flag(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ inline uint32_t read_flag(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// Without the acquire, which is dear: for waiting.
__device__ inline uint32_t peek_flag(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// One thread block's view of its team.
struct Member {
  const Plan& plan;
  int team, rank;
  uint32_t* flags;  // [members] of this team

  __device__ Member(const Plan& plan, uint32_t* all_flags)
      : plan(plan),
        team(blockIdx.x / plan.members),
        rank(blockIdx.x % plan.members),
        flags(all_flags + int64_t(team) * plan.members) {}

  // After it, what every member wrote before its `announce(step)` can be read.
  __device__ void wait(uint32_t step) const {
    for (int i = threadIdx.x; i < plan.members; i += blockDim.x) {
      while (peek_flag(flags + i) < step) {
      }
      read_flag(flags + i);
    }
    __syncthreads();
  }
  __device__ void announce(uint32_t step) const {
    __syncthreads();
    if (threadIdx.x == 0) raise_flag(flags + rank, step);
  }
};

// What a warp works on, and its lane's four elements of each tile.
struct Place {
  int unit_tile, row_group, split, lane;

  __device__ explicit Place(const Plan& plan) {
    const int warp = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    split = warp % plan.splits;
    row_group = warp / plan.splits % plan.row_groups;
    unit_tile = warp / plan.splits / plan.row_groups;
  }
  // Element e of a tile: bit 1 is the unit of the pair, bit 0 the row.
  __device__ int unit(int e) const { return unit_tile * kUnitTile + lane / 4 * 2 + (e >> 1); }
  __device__ int row(int row_tiles, int n, int e) const {
    return (row_group * row_tiles + n) * kRowTile + lane % 4 * 2 + (e & 1);
  }
};

// A's number for k inside a pair: lane quad q, register pair r (0..3) hold k = 8q + 2r, 8q + 2r
// + 1. Shared layout: [tile][pair][half][lane] of uint4.
template <class Element>  // element(tile, unit in the tile, k) -> bf16 bits
__device__ void load_matrix(uint4* matrix, int tiles, int depth, const Element& element) {
  const int pairs = depth / kPair;
  for (int i = threadIdx.x; i < tiles * pairs * 64; i += blockDim.x) {
    const int lane = i % 32, half = i / 32 % 2, pair = i / 64 % pairs, tile = i / 64 / pairs;
    const int k = pair * kPair + lane % 4 * 8 + half * 4, unit = lane / 4 * 2;
    const auto two = [&](int u, int at) {
      return uint32_t(element(tile, u, at)) | uint32_t(element(tile, u, at + 1)) << 16;
    };
    matrix[i] = {two(unit, k), two(unit + 1, k), two(unit, k + 2), two(unit + 1, k + 2)};
  }
}

// acc[m][n] += A[tile m] x[row tile n] over pairs [first, last) of x in shared memory.
template <int MT, int NT>
__device__ void multiply_pairs(float (&acc)[MT][NT][4], const uint4* matrix, int64_t tile_stride,
                               int matrix_pair, const char* x, int stride, int first, int last,
                               const Place& at) {
#pragma unroll 2
  for (int pair = first; pair < last; ++pair) {
    uint4 b[NT];
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      const int row = (at.row_group * NT + n) * kRowTile + at.lane / 4;
      b[n] = *reinterpret_cast<const uint4*>(x + int64_t(row) * stride + pair * kPair * 2 +
                                             at.lane % 4 * 16);
    }
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      const uint4* a = matrix + m * tile_stride + (matrix_pair + pair) * 64 + at.lane;
      const uint4 low = a[0], high = a[32];
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        mma(acc[m][n], low, b[n].x, b[n].y);
        mma(acc[m][n], high, b[n].z, b[n].w);
      }
    }
  }
}

// The same over all of K, x [rows, depth] in global memory, chunk by chunk through `buffers`.
template <int MT, int NT>
__device__ void multiply_global(float (&acc)[MT][NT][4], const uint4* matrix, int64_t tile_stride,
                                const __nv_bfloat16* x, char* buffers, const Plan& plan,
                                const Place& at) {
  const int stride = chunk_stride(plan.chunk);
  const int chunks = (plan.depth + plan.chunk - 1) / plan.chunk;
  const auto fetch = [&](int chunk) {
    if (chunk < chunks) {
      const int width =
          min(plan.chunk, plan.depth - chunk * plan.chunk) / 8;  // 16-byte parts of a row
      char* to = buffers + int64_t(chunk % kBuffers) * plan.rows * stride;
      for (int i = threadIdx.x; i < plan.rows * width; i += blockDim.x) {
        const int row = i / width, part = i % width;
        copy_async(to + row * stride + part * 16,
                   x + int64_t(row) * plan.depth + chunk * plan.chunk + part * 8);
      }
    }
    commit_copies();
  };
  for (int i = 0; i < kBuffers - 1; ++i) fetch(i);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    wait_copies<kBuffers - 2>();
    __syncthreads();
    fetch(chunk + kBuffers - 1);
    const int pairs = min(plan.chunk, plan.depth - chunk * plan.chunk) / kPair;
    const char* from = buffers + int64_t(chunk % kBuffers) * plan.rows * stride;
    multiply_pairs(acc, matrix, tile_stride, chunk * (plan.chunk / kPair), from, stride,
                   pairs * at.split / plan.splits, pairs * (at.split + 1) / plan.splits, at);
  }
}

// Adds up the parts of k in the first warp of each group. scratch: room for the other warps' acc.
template <int MT, int NT>
__device__ void add_splits(float (&acc)[MT][NT][4], float* scratch, const Plan& plan,
                           const Place& at) {
  if (plan.splits == 1) return;
  const int group = at.unit_tile * plan.row_groups + at.row_group;
  constexpr int kEach = MT * NT * 4 * 32;
  if (at.split > 0) {
    float* to = scratch + (group * (plan.splits - 1) + at.split - 1) * kEach + at.lane;
#pragma unroll
    for (int i = 0; i < MT * NT * 4; ++i) to[i * 32] = acc[i / (NT * 4)][i / 4 % NT][i % 4];
  }
  __syncthreads();
  if (at.split == 0)
    for (int s = 0; s < plan.splits - 1; ++s) {
      const float* from = scratch + (group * (plan.splits - 1) + s) * kEach + at.lane;
#pragma unroll
      for (int i = 0; i < MT * NT * 4; ++i) acc[i / (NT * 4)][i / 4 % NT][i % 4] += from[i * 32];
    }
}

}  // namespace tsm::team
