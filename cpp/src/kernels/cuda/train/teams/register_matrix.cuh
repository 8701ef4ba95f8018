// A block that is a team by itself and keeps the matrix, or most of it, in registers (plan.h,
// kRegisters). x goes through shared memory.
//
// A warp has a tile of 16 units with all products and all k, so that every sum is in one warp. The
// block takes two rows of the batch, and a lane has one unit of one row. What the two types share
// is here; their products are below.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/train/operands.cuh"
#include "kernels/cuda/train/teams/plan.h"
#include "kernels/cuda/train/teams/predicated.cuh"

namespace tsm::team {

// P: products of a unit tile. K: blocks of k, an even number. kHeld: tiles of the matrix (unit
// tile, product, block of k) that are in registers. The others, evenly between them, are in shared
// memory; only the lane that has written a part of them reads it.
template <class D, int P, int K, int kHeld>
class RegisterTiles {
 public:
  static constexpr int kPairs = K / 2;               // of blocks of k
  static constexpr int kFirst = kPairs > 2 ? 2 : 1;  // pairs before a step's memory accesses
  const int row, unit;                               // of this lane, within the block

  // Publishes a number of this lane's unit and row, `block` blocks of k after the first. x is
  // double-buffered: a lane writes a buffer only after a barrier that follows all reads of it.
  __device__ void publish(bool on, int round, int block, uint32_t bits) const {
    const uint32_t to = writes_at + (round & 1) * kSide + block * kBlockStep;
    if constexpr (sizeof(D) == 2)
      ptx::store_shared_half_if(on, to, bits);
    else
      ptx::store_shared_word_if(on, to, bits);
  }

 protected:
  static constexpr int kWords = sizeof(D) / 2;  // of a lane's part of a tile
  static constexpr int kSide = register_x_bytes(K, sizeof(D));
  static constexpr int kBlockStep = kTile * (sizeof(D) == 2 ? 2 : 4 * kRegisterRows);

  const uint32_t lane;
  const uint32_t reads_at, writes_at;  // of x, in shared memory

  // Lanes may publish x after the constructor and a barrier.
  __device__ RegisterTiles(void* shared_memory, uint32_t lane, int row, int unit, uint32_t reads,
                           uint32_t writes)
      : row(row),
        unit(unit),
        lane(lane),
        reads_at(ptx::materialized(ptx::shared_address(shared_memory) + reads)),
        writes_at(ptx::materialized(ptx::shared_address(shared_memory) + writes)),
        tiles_at(ptx::materialized(
            ptx::shared_address(shared_memory) +
            uint32_t(2 * kSide + (threadIdx.x / 32 * (P * K - kHeld) * kWords * 32 + lane) * 16))) {
    for (int i = threadIdx.x; i < 2 * kSide / 4; i += blockDim.x)
      static_cast<uint32_t*>(shared_memory)[i] = 0;  // units that no lane publishes
  }

  __device__ void put(int p, int k, int word, const uint4& value) {
    const int n = number(p, k);
    if (is_held(n))
      a[held(n) * kWords + word] = value;
    else
      ptx::store_shared(place(n, word), value);
  }
  __device__ uint4 tile(int p, int k, int word = 0) const {
    const int n = number(p, k);
    return is_held(n) ? a[held(n) * kWords + word] : ptx::load_shared(place(n, word));
  }

 private:
  const uint32_t tiles_at;  // of the matrix, in shared memory
  uint4 a[kHeld * kWords];

  // A tile's number, and how many of those before it are in registers.
  __device__ static constexpr int number(int p, int k) { return k * P + p; }
  __device__ static constexpr int held(int tiles) { return tiles * kHeld / (P * K); }
  __device__ static constexpr bool is_held(int n) { return held(n + 1) > held(n); }
  __device__ uint32_t place(int n, int word) const {
    return tiles_at + uint32_t((n - held(n)) * kWords + word) * 512;
  }
};

template <class D, int P, int K, int kHeld>
class RegisterMatrix;

// bfloat16: on tensor cores. An instruction takes eight columns of x. With several products, each
// row fills four columns: every lane of a quad gets the sums of two units and both rows, and keeps
// its own. With one product (backward) x is long, so only eight lanes read it, for two columns, and
// the first lane of a quad distributes the sums.
template <int P, int K, int kHeld>
class RegisterMatrix<bf16, P, K, kHeld> : public RegisterTiles<bf16, P, K, kHeld> {
  using Tiles = RegisterTiles<bf16, P, K, kHeld>;
  using Tiles::lane;

 public:
  using Tiles::kPairs;

  __device__ explicit RegisterMatrix(void* shared_memory)
      : RegisterMatrix(shared_memory, ptx::materialized(uint32_t(threadIdx.x % 32))) {}

  // Fills the matrix: read(first unit, product, first k of a pair of blocks, k after it, out)
  // returns eight consecutive k of two neighbouring units in `out`.
  template <class Read>
  __device__ void load_matrix(const Read& read) {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        uint4 of[2] = {};
        read(int(threadIdx.x / 4 * 2), p, j * 2 * kTile, int(lane % 4 * 8), of);
        this->put(p, 2 * j, 0, {of[0].x, of[1].x, of[0].y, of[1].y});
        this->put(p, 2 * j + 1, 0, {of[0].z, of[1].z, of[0].w, of[1].w});
      }
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
      ptx::load_shared_if(!kFew || threadIdx.x % 32 < 8,
                          this->reads_at + (round & 1) * Tiles::kSide + j * 64, x);
#pragma unroll
      for (int p = 0; p < P; ++p)
        cuda::mma(sums.of[p][2 * j % Sums::kChains], this->tile(p, 2 * j), x.x, x.y);
#pragma unroll
      for (int p = 0; p < P; ++p)
        cuda::mma(sums.of[p][(2 * j + 1) % Sums::kChains], this->tile(p, 2 * j + 1), x.z, x.w);
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
  static constexpr int kRowBytes = Tiles::kSide / kRegisterRows;

  __device__ static int own_unit() { return threadIdx.x / 4 * 2 + threadIdx.x / 2 % 2; }
  __device__ RegisterMatrix(void* shared_memory, uint32_t lane)
      : Tiles(shared_memory, lane, threadIdx.x % 2, own_unit(),
              uint32_t(lane / 4 % 2 * kRowBytes + lane % 4 * 16),
              uint32_t(threadIdx.x % 2 * kRowBytes + own_unit() * 2)) {}
};

// float32: by multiply-adds. Tensor cores would need three products of rounded numbers and fill
// only two of eight columns. A lane has kUnits units of the tile and one of kParts parts of k; with
// one product (backward) it has more units, so that it reads less of the long x. Then the lanes
// with the same units exchange sums until each has that of its own unit and row. x is
// [pairs of k][rows][2]: one read gives two k of both rows.
template <int P, int K, int kHeld>
class RegisterMatrix<float, P, K, kHeld> : public RegisterTiles<float, P, K, kHeld> {
  using Tiles = RegisterTiles<float, P, K, kHeld>;
  using Tiles::lane;
  static constexpr int kUnits = P == 1 ? 4 : 2, kParts = 2 * kUnits, kLaneK = kTile / kParts;
  static constexpr int kGroup = 32 / kParts;  // lanes with the same part of k

  __device__ static int part() { return threadIdx.x % 32 / kGroup; }
  __device__ static int first_unit() {
    return threadIdx.x / 32 * kTile + threadIdx.x % kGroup * kUnits;
  }
  __device__ static int own_unit() { return first_unit() + part() / 2; }

 public:
  __device__ explicit RegisterMatrix(void* shared_memory)
      : Tiles(shared_memory, threadIdx.x % 32, part() % 2, own_unit(),
              uint32_t(part() * kLaneK * 8),
              uint32_t(own_unit() / 2 * 16 + part() % 2 * 8 + own_unit() % 2 * 4)) {}

  // Fills the matrix: read(first unit, product, first k of a block, k after it, out) returns four
  // consecutive k of two neighbouring units in `out`; with one product, four units of two k.
  template <class Read>
  __device__ void load_matrix(const Read& read) {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int block = 0; block < K; ++block) {
        uint4 of[2] = {};
        read(first_unit(), p, block * kTile, part() * kLaneK, of);
#pragma unroll
        for (int word = 0; word < 2; ++word) this->put(p, block, word, of[word]);
      }
  }

  struct Sums {
    float of[P][kParts];  // [kUnits][rows]

    __device__ void clear() {
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (float& sum : of[p]) sum = 0.0f;
    }
  };

  template <int kFrom, int kTo>
  __device__ void multiply(int round, Sums& sums) const {
    const uint32_t from = this->reads_at + (round & 1) * Tiles::kSide;
#pragma unroll
    for (int block = 2 * kFrom; block < 2 * kTo; ++block) {
      float x[kLaneK][kRegisterRows];
#pragma unroll
      for (int i = 0; i < kLaneK; i += 2) {
        uint4 both{};
        ptx::load_shared_if(true, from + block * Tiles::kBlockStep + i * 8, both);
        x[i][0] = __uint_as_float(both.x), x[i + 1][0] = __uint_as_float(both.y);
        x[i][1] = __uint_as_float(both.z), x[i + 1][1] = __uint_as_float(both.w);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        const uint4 words[2] = {this->tile(p, block, 0), this->tile(p, block, 1)};
#pragma unroll
        for (int i = 0; i < kLaneK; ++i)
#pragma unroll
          for (int u = 0; u < kUnits; ++u) {
            const float w = P == 1 ? at(words[i % 2], u) : at(words[u % 2], i);
#pragma unroll
            for (int r = 0; r < kRegisterRows; ++r)
              sums.of[p][2 * u + r] = fmaf(w, x[i][r], sums.of[p][2 * u + r]);
          }
      }
    }
  }

  // The sum of product p for this lane's unit and row. Each exchange halves the sums that a lane is
  // responsible for.
  __device__ float mine(const Sums& sums, int p) const {
    float all[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) all[i] = sums.of[p][i];
#pragma unroll
    for (int half = kParts / 2; half > 0; half /= 2) {
      const int other = half * kGroup;
      const bool upper = lane & other;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float kept = upper ? all[i + half] : all[i], sent = upper ? all[i] : all[i + half];
        all[i] = kept + __shfl_xor_sync(~0u, sent, other);
      }
    }
    return all[0];
  }

 private:
  __device__ static float at(const uint4& words, int i) {
    return __uint_as_float(i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w);
  }
};

}  // namespace tsm::team
