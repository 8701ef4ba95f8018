// Products on tensor cores, and in float32 with plain multiply-adds.
//
// A block computes a tile of BM rows and BN outputs. It copies a depth of 64 numbers to shared
// memory at a time, kStages ahead. A row of them is 128 bytes, whose 16-byte vectors are swizzled
// by row (vector ^ row % 8), so that reading a column of vectors has no bank conflicts.
#include <cuda_runtime.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/stream/product.h"
#include "kernels/cuda/tensor_cores.cuh"

namespace tsm::cuda {
namespace {

constexpr int kStages = 3;

__device__ inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
__device__ inline int64_t row_of(const Product& p, int64_t r) {
  r = smaller(r, p.rows - 1);
  return p.index ? p.index[r] : r;
}

// Copies BN rows of bfloat16 weights to shared memory while the block computes.
template <int BN, int kThreads>
struct Bfloat16Weights {
  static constexpr int kVectors = BN * 8 / kThreads;
  const __nv_bfloat16* from[kVectors];
  uint32_t to[kVectors];

  __device__ Bfloat16Weights(const Product& p, int64_t first) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int vector = i * kThreads + threadIdx.x, row = vector / 8, k = vector % 8;
      from[i] = static_cast<const __nv_bfloat16*>(p.w) +
                smaller(first + row, p.outputs - 1) * p.depth + k * 8;
      to[i] = row * 128 + ((k ^ (row & 7)) << 4);
    }
  }
  __device__ void begin(uint32_t stage, int64_t k) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) copy_async(stage + to[i], from[i] + k);
  }
  __device__ void end(uint32_t) {}
  __device__ static float scale(const Product&, int64_t) { return 1.0f; }
};

// The same for 8-bit weights, which are converted to bfloat16 on the way.
template <int BN, int kThreads>
struct Int8Weights {
  static constexpr int kVectors = BN * 4 / kThreads;
  const uint8_t* from[kVectors];
  uint32_t to[kVectors][2];
  uint4 held[kVectors];

  __device__ Int8Weights(const Product& p, int64_t first) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int vector = i * kThreads + threadIdx.x, row = vector / 4, k = vector % 4;
      from[i] =
          static_cast<const uint8_t*>(p.w) + smaller(first + row, p.outputs - 1) * p.depth + k * 16;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        to[i][half] = row * 128 + (((2 * k + half) ^ (row & 7)) << 4);
    }
  }
  __device__ void begin(uint32_t, int64_t k) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) held[i] = *reinterpret_cast<const uint4*>(from[i] + k);
  }
  __device__ void end(uint32_t stage) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      put(stage + to[i][0], held[i].x, held[i].y);
      put(stage + to[i][1], held[i].z, held[i].w);
    }
  }
  __device__ static void put(uint32_t at, uint32_t a, uint32_t b) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(widened<0>(a)),
                 "r"(widened<1>(a)), "r"(widened<0>(b)), "r"(widened<1>(b))
                 : "memory");
  }
  __device__ static float scale(const Product& p, int64_t output) { return p.scale[output]; }
};

template <int BM, int BN, int kRowWarps, int kColumnWarps, template <int, int> class W>
__global__ void __launch_bounds__(32 * kRowWarps * kColumnWarps) tensor_product(const Product p) {
  constexpr int kThreads = 32 * kRowWarps * kColumnWarps;
  constexpr int kRowTiles = BM / kRowWarps / 16, kColumnTiles = BN / kColumnWarps / 8;
  constexpr int kXVectors = BM * 8 / kThreads;
  constexpr uint32_t kXBytes = BM * 128, kStage = kXBytes + BN * 128;
  extern __shared__ __align__(128) char memory[];
  const uint32_t base = shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / kColumnWarps * (BM / kRowWarps);
  const int warp_column = warp % kColumnWarps * (BN / kColumnWarps);
  const int64_t first_row = int64_t(blockIdx.y) * BM, first_output = int64_t(blockIdx.x) * BN;

  const __nv_bfloat16* x_from[kXVectors];
  uint32_t x_to[kXVectors];
#pragma unroll
  for (int i = 0; i < kXVectors; ++i) {
    const int vector = i * kThreads + threadIdx.x, row = vector / 8, k = vector % 8;
    x_from[i] =
        static_cast<const __nv_bfloat16*>(p.x) + row_of(p, first_row + row) * p.x_stride + k * 8;
    x_to[i] = row * 128 + ((k ^ (row & 7)) << 4);
  }
  W<BN, kThreads> weights(p, first_output);

  const int steps = int(p.depth / kDepthStep);
  const auto stage_at = [&](int step) { return base + step % kStages * kStage; };
  const auto begin = [&](int step) {
    if (step < steps) {
#pragma unroll
      for (int i = 0; i < kXVectors; ++i)
        copy_async(stage_at(step) + x_to[i], x_from[i] + step * kDepthStep);
      weights.begin(stage_at(step) + kXBytes, step * kDepthStep);
    }
    commit_copies();
  };
  const auto end = [&](int step) {
    if (step < steps) weights.end(stage_at(step) + kXBytes);
  };

  float sum[kRowTiles][kColumnTiles][4] = {};
  for (int step = 0; step < kStages - 1; ++step) begin(step), end(step);
  for (int step = 0; step < steps; ++step) {
    wait_copies<kStages - 2>();
    __syncthreads();
    begin(step + kStages - 1);
    const uint32_t x = stage_at(step), w = x + kXBytes;
#pragma unroll
    for (int k = 0; k < kDepthStep / 16; ++k) {
      uint4 a[kRowTiles], b[kColumnTiles / 2];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        const int row = warp_row + i * 16 + lane % 16, vector = 2 * k + lane / 16;
        a[i] = load_matrices(x + row * 128 + ((vector ^ (row & 7)) << 4));
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles / 2; ++j) {
        const int row = warp_column + j * 16 + lane % 8 + lane / 16 * 8;
        const int vector = 2 * k + lane / 8 % 2;
        b[j] = load_matrices(w + row * 128 + ((vector ^ (row & 7)) << 4));
      }
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < kColumnTiles / 2; ++j) {
          mma(sum[i][2 * j], a[i], b[j].x, b[j].y);
          mma(sum[i][2 * j + 1], a[i], b[j].z, b[j].w);
        }
      }
    }
    end(step + kStages - 1);
  }

#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t row = first_row + warp_row + i * 16 + lane / 4 + e / 2 * 8;
        const int64_t output = first_output + warp_column + j * 8 + lane % 4 * 2 + e % 2;
        if (row >= p.rows || output >= p.outputs) continue;
        float* out = p.out + row * p.outputs + output;
        const float start = p.bias ? p.bias[output] : *out;
        *out = start + sum[i][j][e] * W<BN, kThreads>::scale(p, output);
      }
    }
  }
}

// float32: 64 x 64 outputs per block, 4 x 4 per thread; each sum is one chain in the order of k.
constexpr int kTile = 64, kDeep = 16;

__global__ void __launch_bounds__(256) float_product(const Product p) {
  __shared__ float xs[kDeep][kTile + 4], ws[kDeep][kTile + 4];
  const int64_t first_row = int64_t(blockIdx.y) * kTile, first_output = int64_t(blockIdx.x) * kTile;
  const int load_row = threadIdx.x / 4, load_k = threadIdx.x % 4 * 4;
  const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
  const float* x =
      static_cast<const float*>(p.x) + row_of(p, first_row + load_row) * p.x_stride + load_k;
  const float* w = static_cast<const float*>(p.w) +
                   smaller(first_output + load_row, p.outputs - 1) * p.depth + load_k;
  float sum[4][4] = {};
  float4 next_x = *reinterpret_cast<const float4*>(x), next_w = *reinterpret_cast<const float4*>(w);
  for (int64_t k0 = 0; k0 < p.depth; k0 += kDeep) {
    const float* from_x = reinterpret_cast<const float*>(&next_x);
    const float* from_w = reinterpret_cast<const float*>(&next_w);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      xs[load_k + i][load_row] = from_x[i];
      ws[load_k + i][load_row] = from_w[i];
    }
    __syncthreads();
    if (k0 + kDeep < p.depth) {
      next_x = *reinterpret_cast<const float4*>(x + k0 + kDeep);
      next_w = *reinterpret_cast<const float4*>(w + k0 + kDeep);
    }
#pragma unroll
    for (int k = 0; k < kDeep; ++k) {
      const float4 a = *reinterpret_cast<const float4*>(&xs[k][row]);
      const float4 b = *reinterpret_cast<const float4*>(&ws[k][column]);
      const float ra[4] = {a.x, a.y, a.z, a.w}, rb[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(ra[i], rb[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t r = first_row + row + i, output = first_output + column + j;
      if (r >= p.rows || output >= p.outputs) continue;
      float* out = p.out + r * p.outputs + output;
      *out = (p.bias ? p.bias[output] : *out) + sum[i][j];
    }
  }
}

// For few rows or few outputs: each warp takes one output (or row, respectively), and its lanes
// split the depth. Weights are read 16 bytes at a time, that is kCount numbers.
constexpr int kThin = 8, kThinWarps = 8;

// Adds up the sums of the lanes.
__device__ inline float sum_of_warp(float sum) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  return sum;
}
template <class W>
__device__ inline void finish(const Product& p, int64_t row, int64_t output, float sum) {
  float* out = p.out + row * p.outputs + output;
  *out = (p.bias ? p.bias[output] : *out) + sum * W::scale(p, output);
}

struct ThinFloat {
  static constexpr int kCount = 4;
  __device__ static void weights(const void* w, int64_t at, float (&to)[kCount]) {
    const float4 v = __ldg(reinterpret_cast<const float4*>(static_cast<const float*>(w) + at));
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
  __device__ static void inputs(const void* x, int64_t at, float (&to)[kCount]) {
    weights(x, at, to);
  }
  __device__ static float scale(const Product&, int64_t) { return 1.0f; }
};

__device__ inline void unpack(uint32_t two, float* to) {
  to[0] = __uint_as_float(two << 16);
  to[1] = __uint_as_float(two & 0xffff0000u);
}
__device__ inline void unpack(uint4 eight, float* to) {
  unpack(eight.x, to);
  unpack(eight.y, to + 2);
  unpack(eight.z, to + 4);
  unpack(eight.w, to + 6);
}
__device__ inline uint4 eight_at(const void* x, int64_t at) {
  return __ldg(reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(x) + at));
}

struct ThinBfloat16 {
  static constexpr int kCount = 8;
  __device__ static void weights(const void* w, int64_t at, float (&to)[kCount]) {
    unpack(eight_at(w, at), to);
  }
  __device__ static void inputs(const void* x, int64_t at, float (&to)[kCount]) {
    unpack(eight_at(x, at), to);
  }
  __device__ static float scale(const Product&, int64_t) { return 1.0f; }
};

struct ThinInt8 {
  static constexpr int kCount = 16;
  __device__ static void weights(const void* w, int64_t at, float (&to)[kCount]) {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(w) + at));
    const uint32_t four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unpack(widened<0>(four[i]), to + 4 * i);
      unpack(widened<1>(four[i]), to + 4 * i + 2);
    }
  }
  __device__ static void inputs(const void* x, int64_t at, float (&to)[kCount]) {
    unpack(eight_at(x, at), to);
    unpack(eight_at(x, at + 8), to + 8);
  }
  __device__ static float scale(const Product& p, int64_t output) { return p.scale[output]; }
};

template <class W>
__global__ void __launch_bounds__(32 * kThinWarps) few_rows(const Product p) {
  const int64_t output = int64_t(blockIdx.x) * kThinWarps + threadIdx.x / 32;
  if (output >= p.outputs) return;
  const int lane = threadIdx.x % 32;
  int64_t row[kThin];
#pragma unroll
  for (int r = 0; r < kThin; ++r) row[r] = row_of(p, r) * p.x_stride;
  float sum[kThin] = {};
#pragma unroll 2
  for (int64_t k = lane * W::kCount; k < p.depth; k += 32 * W::kCount) {
    float w[W::kCount], x[W::kCount];
    W::weights(p.w, output * p.depth + k, w);
#pragma unroll
    for (int r = 0; r < kThin; ++r) {
      if (r >= p.rows) break;
      W::inputs(p.x, row[r] + k, x);
#pragma unroll
      for (int i = 0; i < W::kCount; ++i) sum[r] = fmaf(w[i], x[i], sum[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kThin; ++r) {
    if (r >= p.rows) break;
    sum[r] = sum_of_warp(sum[r]);
    if (lane == 0) finish<W>(p, r, output, sum[r]);
  }
}

template <class W>
__global__ void __launch_bounds__(32 * kThinWarps) few_outputs(const Product p) {
  // A block's results are neighbours in memory, which may be the host's: they are written together.
  __shared__ float sums[kThinWarps][kThin];
  const int64_t first = int64_t(blockIdx.x) * kThinWarps;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t at = row_of(p, first + warp) * p.x_stride;
  float sum[kThin] = {};
#pragma unroll 4
  for (int64_t k = lane * W::kCount; k < p.depth; k += 32 * W::kCount) {
    float w[W::kCount], x[W::kCount];
    W::inputs(p.x, at + k, x);
#pragma unroll
    for (int o = 0; o < kThin; ++o) {
      if (o >= p.outputs) break;
      W::weights(p.w, o * p.depth + k, w);
#pragma unroll
      for (int i = 0; i < W::kCount; ++i) sum[o] = fmaf(w[i], x[i], sum[o]);
    }
  }
#pragma unroll
  for (int o = 0; o < kThin; ++o) {
    if (o >= p.outputs) break;
    sum[o] = sum_of_warp(sum[o]);
    if (lane == 0) sums[warp][o] = sum[o];
  }
  __syncthreads();
  const int outputs = int(p.outputs), row = int(threadIdx.x) / outputs;
  if (row < kThinWarps && first + row < p.rows)
    finish<W>(p, first + row, threadIdx.x % outputs, sums[row][threadIdx.x % outputs]);
}

template <class W>
void run_thin(const Product& p, cudaStream_t stream) {
  const bool rows = p.rows <= kThin;
  const auto blocks = unsigned(((rows ? p.outputs : p.rows) + kThinWarps - 1) / kThinWarps);
  rows ? few_rows<W><<<blocks, 32 * kThinWarps, 0, stream>>>(p)
       : few_outputs<W><<<blocks, 32 * kThinWarps, 0, stream>>>(p);
}

dim3 tiles(const Product& p, int64_t rows, int64_t outputs) {
  return {unsigned((p.outputs + outputs - 1) / outputs), unsigned((p.rows + rows - 1) / rows)};
}

template <int BM, int BN, int kRowWarps, int kColumnWarps, template <int, int> class W>
void run(const Product& p, cudaStream_t stream) {
  const auto kernel = tensor_product<BM, BN, kRowWarps, kColumnWarps, W>;
  constexpr int bytes = kStages * (BM + BN) * 128;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  check(allowed, "shared memory of a product");
  kernel<<<tiles(p, BM, BN), 32 * kRowWarps * kColumnWarps, bytes, stream>>>(p);
}

template <template <int, int> class W>
void run_tensor(const Product& p, cudaStream_t stream) {
  // Use large tiles if there are enough of them for all multiprocessors.
  const bool large = ((p.rows + 127) / 128) * ((p.outputs + 127) / 128) >= 128;
  large ? run<128, 128, 2, 4, W>(p, stream) : run<64, 64, 2, 2, W>(p, stream);
}

}  // namespace

void product(Weights kind, const Product& p, void* stream) {
  if (p.rows == 0) return;
  const auto on = static_cast<cudaStream_t>(stream);
  const bool thin = p.rows <= kThin || p.outputs <= kThin;
  switch (kind) {
    case Weights::kBFloat16:
      thin ? run_thin<ThinBfloat16>(p, on) : run_tensor<Bfloat16Weights>(p, on);
      break;
    case Weights::kInt8:
      thin ? run_thin<ThinInt8>(p, on) : run_tensor<Int8Weights>(p, on);
      break;
    default:
      thin ? run_thin<ThinFloat>(p, on) : float_product<<<tiles(p, kTile, kTile), 256, 0, on>>>(p);
  }
  check(cudaGetLastError(), "a product");
}

}  // namespace tsm::cuda
