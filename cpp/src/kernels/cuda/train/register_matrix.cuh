// A block that is a team by itself and keeps the matrix, or most of it, in registers (plan.h,
// kRegisters). x goes through shared memory.
//
// A warp has a tile of 16 units with all products and all k, so that every sum is in one warp. The
// block takes two rows of the batch, and a lane has one unit of one row. An instruction takes eight
// columns of x. With several products, each row fills four columns: every lane of a quad gets the
// sums of two units and both rows, and keeps its own. With one product (backward) x is long, so
// only eight lanes read it, for two columns, and the first lane of a quad distributes the sums.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/train/operands.cuh"
#include "kernels/cuda/train/plan.h"
#include "kernels/cuda/train/predicated.cuh"

namespace tsm::team {

// P: products of a unit tile. K: blocks of k, an even number. kHeld: tiles of the matrix (unit
// tile, product, block of k) that are in registers. The others, evenly between them, are in shared
// memory; only the lane that has written a part of them reads it.
template <int P, int K, int kHeld>
class RegisterMatrix {
 public:
  static constexpr int kPairs = K / 2;  // of blocks of k: a lane reads x in pairs
  const int row, unit;                  // of this lane, within the block

  // Lanes may publish x after the constructor and a barrier.
  __device__ explicit RegisterMatrix(void* shared_memory)
      : row(threadIdx.x % 2),
        unit(threadIdx.x / 4 * 2 + threadIdx.x / 2 % 2),
        lane(ptx::materialized(uint32_t(threadIdx.x % 32))),
        reads_at(ptx::materialized(ptx::shared_address(shared_memory) +
                                   uint32_t(lane / 4 % 2 * kRowBytes + lane % 4 * 16))),
        writes_at(ptx::materialized(ptx::shared_address(shared_memory) +
                                    uint32_t(row * kRowBytes + unit * 2))),
        tiles_at(ptx::materialized(
            ptx::shared_address(shared_memory) +
            uint32_t(2 * kSide + (threadIdx.x / 32 * (P * K - kHeld) * 32 + lane) * 16))) {
    for (int i = threadIdx.x; i < 2 * kSide / 4; i += blockDim.x)
      static_cast<uint32_t*>(shared_memory)[i] = 0;  // units that no lane publishes
  }

  // Fills the matrix: read(first unit, product, pair of blocks, k in the pair, out) returns eight
  // consecutive k of two neighbouring units in `out`.
  template <class Read>
  __device__ void load_matrix(const Read& read) {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        uint4 of[2] = {};
        read(int(threadIdx.x / 4 * 2), p, j, int(lane % 4 * 8), of);
        put(p, 2 * j, {of[0].x, of[1].x, of[0].y, of[1].y});
        put(p, 2 * j + 1, {of[0].z, of[1].z, of[0].w, of[1].w});
      }
  }

  // Publishes a bfloat16 of this lane's unit and row, `block` blocks of k after the first. x is
  // double-buffered: a lane writes a buffer only after a barrier that follows all reads of it.
  __device__ void publish(bool on, int round, int block, uint32_t bits) const {
    ptx::store_shared_half_if(on, writes_at + (round & 1) * kSide + block * kTile * 2, bits);
  }

  struct Sums {
    static constexpr int kChains = P == 1 ? 3 : P == 2 ? 2 : 1;  // independent dependency chains
    float of[P][kChains][4];
    static constexpr int kRead = 6;  // pairs of x in flight from shared memory
    uint4 x[kRead] = {};             // stays 0 in lanes that do not read

    __device__ void clear() {
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int c = 0; c < kChains; ++c)
#pragma unroll
          for (float& sum : of[p][c]) sum = 0.0f;
    }
  };

  // sums += the products with pairs kFrom to kTo of x, which all lanes have published for this
  // round.
  template <int kFrom, int kTo>
  __device__ void multiply(int round, Sums& sums) const {
#pragma unroll
    for (int j = kFrom; j < kTo; ++j) {
      uint4& x = sums.x[j % Sums::kRead];
      ptx::load_shared_if(!kFew || threadIdx.x % 32 < 8, reads_at + (round & 1) * kSide + j * 64,
                          x);
#pragma unroll
      for (int p = 0; p < P; ++p)
        cuda::mma(sums.of[p][2 * j % Sums::kChains], tile(p, 2 * j), x.x, x.y);
#pragma unroll
      for (int p = 0; p < P; ++p)
        cuda::mma(sums.of[p][(2 * j + 1) % Sums::kChains], tile(p, 2 * j + 1), x.z, x.w);
    }
  }

  // The sum of product p for this lane's unit and row.
  __device__ float mine(const Sums& sums, int p) const {
    float all[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      all[i] = sums.of[p][0][i];
#pragma unroll
      for (int c = 1; c < Sums::kChains; ++c) all[i] += sums.of[p][c][i];
      if (kFew) all[i] = __shfl_sync(~0u, all[i], int(lane & ~3u));
    }
    const float first = lane & 1 ? all[1] : all[0], second = lane & 1 ? all[3] : all[2];
    return lane & 2 ? second : first;
  }

 private:
  static constexpr bool kFew = P == 1;  // only few lanes read x
  static constexpr int kRowBytes = register_row_bytes(K), kSide = kRegisterRows * kRowBytes;

  const uint32_t lane;
  const uint32_t reads_at, writes_at;  // of x, in shared memory
  const uint32_t tiles_at;             // of the matrix, there
  uint4 a[kHeld];

  // A tile's number, and how many of those before it are in registers.
  __device__ static constexpr int number(int p, int k) { return k * P + p; }
  __device__ static constexpr int held(int tiles) { return tiles * kHeld / (P * K); }
  __device__ static constexpr bool is_held(int n) { return held(n + 1) > held(n); }
  __device__ uint32_t place(int n) const { return tiles_at + uint32_t(n - held(n)) * 512; }

  __device__ void put(int p, int k, const uint4& value) {
    const int n = number(p, k);
    if (is_held(n))
      a[held(n)] = value;
    else
      ptx::store_shared(place(n), value);
  }
  __device__ uint4 tile(int p, int k) const {
    const int n = number(p, k);
    return is_held(n) ? a[held(n)] : ptx::load_shared(place(n));
  }
};

}  // namespace tsm::team
