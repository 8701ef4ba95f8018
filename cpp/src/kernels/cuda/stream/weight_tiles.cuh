// The recurrent product of a few streams, for each kind of weights.
//
// The outputs of a layer are split into tiles of 16 units of one gate; a block has the G tiles of
// its units. The depth (h) is split into chunks of 32, which the warps of a block share. Each warp
// multiplies its chunks of the G tiles by the h of 8 streams, and writes its partial sums to `part`
// [G][8 streams][16 units, padded].
//
// Blocks exchange h through L2 as words of 8 bytes: a value and a tag. A reader polls a word until
// its tag is the expected step. No other flag and no fence is needed.
#pragma once
#include <type_traits>

#include "cells/math_cuda.cuh"
#include "kernels/cuda/tensor_cores.cuh"

namespace tsm::cuda {

constexpr int kUnits = 16, kGroup = 8,
              kDepthBlock = 32;  // units of a tile, streams, depth of a block
constexpr int kWarps = 8;
constexpr int kPartStride = 20;  // floats between two streams, avoids bank conflicts
constexpr int kPart = kGroup * kPartStride;

__host__ __device__ constexpr int depth_blocks(int H) {
  return (H + kDepthBlock - 1) / kDepthBlock;
}
__host__ __device__ constexpr int unit_tiles(int H) { return (H + kUnits - 1) / kUnits; }

// Read two words, and one. A word is read and written by a single 64-bit access.
__device__ inline uint4 peek_two(const uint2* words) {
  uint64_t a, b;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];"
               : "=l"(a), "=l"(b)
               : "l"(words)
               : "memory");
  return {uint32_t(a), uint32_t(a >> 32), uint32_t(b), uint32_t(b >> 32)};
}
__device__ inline uint2 peek(const uint2* word) {
  uint64_t a;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(a) : "l"(word) : "memory");
  return {uint32_t(a), uint32_t(a >> 32)};
}
__device__ inline void write_word(uint2* word, uint32_t value, uint32_t tag) {
  const uint64_t both = uint64_t(tag) << 32 | value;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(both) : "memory");
}

// The inputs of a warp's share of a product.
struct ProductShare {
  const char* near;  // the block's tiles in shared memory
  const char* far;   // the block's tiles in global memory
  int first;         // the first of G tiles
  int shared_tiles;  // number of tiles in `near`
  int H;
  const uint2* words;  // of the first stream
  int stride;          // words of a stream
  int streams;         // at most kGroup
  uint32_t tag;
};

__device__ inline uint4 tile_block(const ProductShare& s, int tile, int64_t at) {
  if (tile < s.shared_tiles) return *reinterpret_cast<const uint4*>(s.near + at);
  return __ldg(reinterpret_cast<const uint4*>(s.far + at));
}

// Tensor cores: out^T [16 units, 8 streams] = tile [16, k] h^T [k, 8], m16n8k16. In a block, a lane
// holds 8 consecutive numbers of h, four k for each of two multiplications; the tiles are packed in
// the same order. A word holds h of two units.
template <bool kBytes>
struct TensorTiles {
  using Math = FastCuda;
  using Activation = __nv_bfloat16;
  static constexpr bool kScaled = kBytes;
  static constexpr int kAhead = 4;  // blocks that a warp waits for together
  static constexpr int kBlockBytes = kBytes ? 512 : 1024;

  __host__ __device__ static int64_t tile_bytes(int H) {
    return int64_t(depth_blocks(H)) * kBlockBytes;
  }
  __host__ __device__ static int words(int H) { return unit_tiles(H) * kUnits / 2; }

  // Called by all lanes of a warp; units 2 * i and 2 * i + 1 are in neighbouring lanes.
  __device__ static void publish(uint2* words, int unit, float h, uint32_t tag, bool wanted) {
    const float next = __shfl_down_sync(~0u, h, 1);
    if (wanted && unit % 2 == 0) write_word(words + unit / 2, packed(h, next), tag);
  }

  template <int G>
  __device__ static void product(const ProductShare& s, float* part) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quarter = lane % 4;
    const int known = words(s.H), last = depth_blocks(s.H);
    const uint2* words_of_lane = s.words + int64_t(lane / 4) * s.stride + quarter * 4;
    float sum[G][4] = {};
    for (int p0 = warp; p0 < last; p0 += kWarps * kAhead) {
      uint4 low[kAhead] = {}, high[kAhead] = {};
      bool waiting;
      do {
        waiting = false;
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const int word = (p0 + i * kWarps) * 16;
          if (lane / 4 >= s.streams || word + quarter * 4 >= known) continue;
          low[i] = peek_two(words_of_lane + word);
          high[i] = peek_two(words_of_lane + word + 2);
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const int word = (p0 + i * kWarps) * 16;
          if (lane / 4 >= s.streams || word + quarter * 4 >= known) continue;
          waiting |=
              low[i].y != s.tag || low[i].w != s.tag || high[i].y != s.tag || high[i].w != s.tag;
        }
      } while (waiting);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int p = p0 + i * kWarps;
        if (p >= last) break;
#pragma unroll
        for (int g = 0; g < G; ++g) {
          const int64_t at = (s.first + g) * tile_bytes(s.H) + p * kBlockBytes;
          uint4 a, b;
          if constexpr (kBytes) {
            const uint4 w = tile_block(s, s.first + g, at + lane * 16);
            a = {widened<0>(w.x), widened<1>(w.x), widened<0>(w.y), widened<1>(w.y)};
            b = {widened<0>(w.z), widened<1>(w.z), widened<0>(w.w), widened<1>(w.w)};
          } else {
            a = tile_block(s, s.first + g, at + lane * 16);
            b = tile_block(s, s.first + g, at + 512 + lane * 16);
          }
          mma(sum[g], a, low[i].x, low[i].z);
          mma(sum[g], b, high[i].x, high[i].z);
        }
      }
    }
#pragma unroll
    for (int g = 0; g < G; ++g) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int unit = lane / 4 + e / 2 * 8, stream = quarter * 2 + e % 2;
        part[g * kPart + stream * kPartStride + unit] = sum[g][e];
      }
    }
  }

  // The unit and k in U of element e (0 .. 15) of a lane in a tile's block.
  __host__ __device__ static void place(int lane, int e, int* unit, int* k) {
    // Each multiplication (e / 8) has the registers a0 .. a3: (unit, k), (unit + 8, k), (unit, k +
    // 2), (unit + 8, k + 2), two numbers each.
    const int second = e / 8, pair = e % 8 / 2;
    *unit = lane / 4 + pair % 2 * 8;
    *k = lane % 4 * 8 + second * 4 + pair / 2 * 2 + e % 2;
  }
};

// float32 with multiply-adds: a lane has unit lane % 16 and every second k; four of these k are
// adjacent in memory. A word holds h of one unit.
struct FloatTiles {
  using Math = Scalar<float>;
  using Activation = float;
  static constexpr bool kScaled = false;
  static constexpr int kBlockBytes = kDepthBlock * kUnits * 4;

  __host__ __device__ static int64_t tile_bytes(int H) {
    return int64_t(depth_blocks(H)) * kBlockBytes;
  }
  __host__ __device__ static int words(int H) { return unit_tiles(H) * kUnits; }

  __device__ static void publish(uint2* words, int unit, float h, uint32_t tag, bool wanted) {
    if (wanted) write_word(words + unit, __float_as_uint(h), tag);
  }

  // The unit and k in U of element e (0 .. 15) of a lane in a tile's block.
  __host__ __device__ static void place(int lane, int e, int* unit, int* k) {
    *unit = lane % kUnits;
    *k = 2 * e + lane / kUnits;
  }

  template <int G>
  __device__ static void product(const ProductShare& s, float* part) {
    constexpr int kFours = kDepthBlock / 8;  // per lane and block
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, odd = lane / 16;
    float sum[G][kGroup] = {};
    for (int p = warp; p < depth_blocks(s.H); p += kWarps) {
      // Load the weights first: the loads are in flight while the warp waits for h.
      uint4 w[G][kFours];
#pragma unroll
      for (int i = 0; i < G * kFours; ++i) {
        const int tile = s.first + i / kFours;
        w[i / kFours][i % kFours] = tile_block(
            s, tile, tile * tile_bytes(s.H) + p * kBlockBytes + (i % kFours * 32 + lane) * 16);
      }
      float h[kGroup] = {};
      const int k = p * kDepthBlock + lane;
#pragma unroll
      for (int n = 0; n < kGroup; ++n) {
        if (n >= s.streams || k >= words(s.H)) continue;
        uint2 word;
        do {
          word = peek(s.words + int64_t(n) * s.stride + k);
        } while (word.y != s.tag);
        h[n] = __uint_as_float(word.x);
      }
      __syncwarp();
#pragma unroll
      for (int n = 0; n < kGroup; ++n) {
        if (n >= s.streams) break;
#pragma unroll
        for (int i = 0; i < kDepthBlock / 2; ++i) {
          const float x = __shfl_sync(~0u, h[n], 2 * i + odd);
#pragma unroll
          for (int g = 0; g < G; ++g) {
            const uint4& four = w[g][i / 4];
            const uint32_t one = i % 4 == 0   ? four.x
                                 : i % 4 == 1 ? four.y
                                 : i % 4 == 2 ? four.z
                                              : four.w;
            sum[g][n] = fmaf(__uint_as_float(one), x, sum[g][n]);
          }
        }
      }
    }
#pragma unroll
    for (int g = 0; g < G; ++g) {
#pragma unroll
      for (int n = 0; n < kGroup; ++n) {
        const float both = sum[g][n] + __shfl_xor_sync(~0u, sum[g][n], 16);
        if (odd == 0) part[g * kPart + n * kPartStride + lane] = both;
      }
    }
  }
};

}  // namespace tsm::cuda
