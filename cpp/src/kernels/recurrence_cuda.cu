// The fused recurrence of every cell on a GPU: teams of thread blocks (team_cuda.cuh) with the
// generated cells between their products.
#include <cuda_runtime.h>

#include <algorithm>

#include "cells/all.h"
#include "cells/math_cuda.cuh"
#include "core/error.h"
#include "kernels/recurrence_cuda.h"
#include "kernels/team_cuda.cuh"

namespace tsm {
namespace {

using namespace team;
using bf16 = __nv_bfloat16;
using M = FastCuda;

constexpr int kMaxThreads = kMaxWarps * 32;

template <class Cell>
struct Sizes {
  static constexpr int G = Cell::kGates, S = Cell::kStates, K = Cell::kVectors, Q = Cell::kPrepared;
  static constexpr int kK = K > 0 ? K : 1, kQ = Q > 0 ? Q : 1;
  static constexpr int kC = Cell::kConstants > 0 ? Cell::kConstants : 1;
  __host__ __device__ static constexpr bool reads(int state) {
    return (Cell::kReads >> state) & 1u;
  }
};

template <class Cell>
struct Constants {
  float value[Sizes<Cell>::kC];
};

__device__ uint16_t bits(bf16 x) { return __bfloat16_as_ushort(x); }

// Where a lane's pair of units lies in global memory: two neighbours, read or written at once where
// the address allows it.
struct Pair {
  bool first, second, together;

  template <class T>
  __device__ float2 load(const T* p) const;
  __device__ __nv_bfloat162 load_raw(const bf16* p) const {
    if (together) return __ldg(reinterpret_cast<const __nv_bfloat162*>(p));
    const bf16 zero = __float2bfloat16_rn(0.0f);
    return {first ? p[0] : zero, second ? p[1] : zero};
  }
  __device__ void store(float* p, float a, float b) const {
    if (together)
      *reinterpret_cast<float2*>(p) = {a, b};
    else {
      if (first) p[0] = a;
      if (second) p[1] = b;
    }
  }
  __device__ void store(bf16* p, float a, float b) const {
    if (together)
      *reinterpret_cast<__nv_bfloat162*>(p) = __floats2bfloat162_rn(a, b);
    else {
      if (first) p[0] = __float2bfloat16_rn(a);
      if (second) p[1] = __float2bfloat16_rn(b);
    }
  }
};
template <>
__device__ float2 Pair::load<float>(const float* p) const {
  if (together) return __ldg(reinterpret_cast<const float2*>(p));
  return {first ? __ldg(p) : 0.0f, second ? __ldg(p + 1) : 0.0f};
}
template <>
__device__ float2 Pair::load<bf16>(const bf16* p) const {
  return __bfloat1622float2(load_raw(p));
}

// The elements of one lane: NT row tiles of two rows, two units each.
template <int NT>
struct Lane {
  int64_t row[NT][2];  // of the batch
  bool live[NT][2];    // the row exists, and so does a unit
  int64_t unit;        // the first of the pair, in the layer
  int slot[NT][2];     // row inside the team
  Pair pair;

  __device__ Lane(const Plan& plan, const Place& at, int team, int rank, int64_t B, int64_t H) {
    unit = int64_t(rank) * plan.unit_tiles * kUnitTile + at.unit(0);
    pair.first = unit < H;
    pair.second = unit + 1 < H;
    pair.together = pair.second && H % 2 == 0;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        slot[n][j] = at.row(NT, n, j);
        row[n][j] = int64_t(team) * plan.rows + slot[n][j];
        live[n][j] = row[n][j] < B && pair.first && at.split == 0;
      }
  }
};

template <int A, int NT>
__device__ void clear(float (&x)[A][NT][4]) {
#pragma unroll
  for (int a = 0; a < A; ++a)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) x[a][n][e] = 0.0f;
}

template <class Cell, int NT>
__device__ void prepare(const Lane<NT>& at, const float* vectors, const Constants<Cell>& k,
                        int64_t H, float (&v)[2][Sizes<Cell>::kK], float (&q)[2][Sizes<Cell>::kQ]) {
#pragma unroll
  for (int u = 0; u < 2; ++u) {
#pragma unroll
    for (int i = 0; i < Sizes<Cell>::K; ++i)
      v[u][i] = at.unit + u < H ? vectors[i * H + at.unit + u] : 1.0f;
    Cell::template prepare<M>(v[u], k.value, q[u]);
  }
}

template <class Cell, int NT>
__global__ void __launch_bounds__(kMaxThreads, 1)
    forward_kernel(const Plan plan, const RecurrenceForward a, const Constants<Cell> k,
                   bf16* exchange, uint32_t* flags) {
  constexpr int G = Sizes<Cell>::G, S = Sizes<Cell>::S;
  extern __shared__ uint4 shared[];
  const int64_t B = a.shape.B, T = a.shape.T, H = a.shape.H;
  const Member member(plan, flags);
  const Place place(plan);
  const Lane<NT> at(plan, place, member.team, member.rank, B, H);
  const bf16* zx = static_cast<const bf16*>(a.zx);
  const float* dts = static_cast<const float*>(a.dt);
  float* kept_z = static_cast<float*>(a.z);
  float* trail = static_cast<float*>(a.trail);
  bf16* y = static_cast<bf16*>(a.y);

  const int64_t tile_stride = int64_t(plan.depth) / kPair * 64;
  uint4* matrix = shared;
  char* buffers = reinterpret_cast<char*>(matrix + plan.unit_tiles * G * tile_stride);
  const bool alone = plan.members == 1;
  const int stride = whole_stride(plan.depth);
  float* scratch = reinterpret_cast<float*>(
      buffers + (alone ? int64_t(plan.rows) * stride
                       : int64_t(kBuffers) * plan.rows * chunk_stride(plan.chunk)));
  const int64_t team_numbers = int64_t(plan.rows) * plan.depth;
  const int64_t side = team_numbers * plan.teams;  // of the double buffer

  const bf16* weight = static_cast<const bf16*>(a.weight_h);
  const int64_t first_unit = int64_t(member.rank) * plan.unit_tiles * kUnitTile;
  load_matrix(matrix, plan.unit_tiles * G, plan.depth, [&](int tile, int unit, int kk) {
    const int64_t u = first_unit + tile / G * kUnitTile + unit;
    return u < H && kk < H ? bits(weight[(int64_t(tile % G) * H + u) * H + kk]) : uint16_t(0);
  });
  if (alone)
    for (int i = threadIdx.x; i < plan.rows * stride / 16; i += blockDim.x)
      reinterpret_cast<uint4*>(buffers)[i] = {0, 0, 0, 0};
  __syncthreads();

  float s[S][NT][4];
  clear(s);
  int64_t length[NT][2];
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      length[n][j] = at.live[n][j] ? (a.lengths ? a.lengths[at.row[n][j]] : T) : 0;
      if (!at.live[n][j]) continue;
#pragma unroll
      for (int i = 0; i < S; ++i) {
        const float2 two =
            at.pair.load(static_cast<const float*>(a.state) + (i * B + at.row[n][j]) * H + at.unit);
        s[i][n][j] = two.x;
        s[i][n][2 + j] = two.y;
      }
    }
  float v[2][Sizes<Cell>::kK], q[2][Sizes<Cell>::kQ];
  prepare<Cell>(at, static_cast<const float*>(a.vectors), k, H, v, q);

  // h as U sees it, for the step that reads that side of the buffer.
  const auto publish = [&](int64_t step) {
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!at.live[n][j]) continue;
        bf16* to = alone ? reinterpret_cast<bf16*>(buffers + int64_t(at.slot[n][j]) * stride)
                         : exchange + (step & 1) * side + member.team * team_numbers +
                               int64_t(at.slot[n][j]) * plan.depth;
        // Padded rows are even, so the two may be written at once wherever both exist.
        const Pair both{at.pair.first, at.pair.second, at.pair.second};
        both.store(to + at.unit, s[0][n][j], s[0][n][2 + j]);
      }
  };
  publish(0);
  if (alone)
    __syncthreads();
  else
    member.announce(1);

  // zx is fetched one step ahead.
  __nv_bfloat162 input[G][NT][2], next[G][NT][2];
  const auto fetch = [&](int64_t t) {
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int g = 0; g < G; ++g)
          next[g][n][j] =
              t < length[n][j]
                  ? at.pair.load_raw(zx + ((at.row[n][j] * T + t) * G + g) * H + at.unit)
                  : __nv_bfloat162{};
  };
  fetch(0);

  for (int64_t t = 0; t < T; ++t) {
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int g = 0; g < G; ++g) input[g][n][j] = next[g][n][j];
        if (trail && at.live[n][j]) {
          int64_t m = 0;
#pragma unroll
          for (int i = 0; i < S; ++i)
            if (Sizes<Cell>::reads(i))
              at.pair.store(trail + ((m++ * B + at.row[n][j]) * T + t) * H + at.unit, s[i][n][j],
                            s[i][n][2 + j]);
        }
      }
    fetch(t + 1);
    float z[G][NT][4];
    clear(z);
    const uint4* mine = matrix + int64_t(place.unit_tile) * G * tile_stride;
    if (alone) {
      const int pairs = plan.depth / kPair;
      multiply_pairs(z, mine, tile_stride, 0, buffers, stride, pairs * place.split / plan.splits,
                     pairs * (place.split + 1) / plan.splits, place);
      __syncthreads();  // all have read h: it may be overwritten
    } else {
      member.wait(uint32_t(t + 1));
      multiply_global(z, mine, tile_stride, exchange + (t & 1) * side + member.team * team_numbers,
                      buffers, plan, place);
    }
    add_splits(z, scratch, plan, place);
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int g = 0; g < G; ++g) {
          const float2 two = __bfloat1622float2(input[g][n][j]);
          z[g][n][j] += two.x;
          z[g][n][2 + j] += two.y;
        }
        const bool on = t < length[n][j];  // no branch, so that the elements' chains interleave
        const float dt = dts && on ? dts[at.row[n][j] * T + t] : 1.0f;
#pragma unroll
        for (int u = 0; u < 2; ++u) {
          float ze[G], se[S], out[S];
#pragma unroll
          for (int g = 0; g < G; ++g) ze[g] = z[g][n][2 * u + j];
#pragma unroll
          for (int i = 0; i < S; ++i) se[i] = s[i][n][2 * u + j];
          Cell::template forward<M>(ze, se, q[u], k.value, dt, out);
#pragma unroll
          for (int i = 0; i < S; ++i) s[i][n][2 * u + j] = on ? out[i] : se[i];
        }
      }
    publish(t + 1);
    if (alone)
      __syncthreads();
    else
      member.announce(uint32_t(t + 2));
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!at.live[n][j]) continue;
        const int64_t here = at.row[n][j] * T + t;
        const float on = t < length[n][j] ? 1.0f : 0.0f;
        at.pair.store(y + here * H + at.unit, on * s[0][n][j], on * s[0][n][2 + j]);
        if (kept_z)
#pragma unroll
          for (int g = 0; g < G; ++g)
            at.pair.store(kept_z + here * G * H + g * H + at.unit, z[g][n][j], z[g][n][2 + j]);
      }
  }
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      if (at.live[n][j])
#pragma unroll
        for (int i = 0; i < S; ++i)
          at.pair.store(static_cast<float*>(a.last) + (i * B + at.row[n][j]) * H + at.unit,
                        s[i][n][j], s[i][n][2 + j]);
}

template <class Cell, int NT>
__global__ void __launch_bounds__(kMaxThreads, 1)
    backward_kernel(const Plan plan, const RecurrenceBackward a, const Constants<Cell> k,
                    bf16* exchange, uint32_t* flags) {
  constexpr int G = Sizes<Cell>::G, S = Sizes<Cell>::S, Q = Sizes<Cell>::Q, K = Sizes<Cell>::K;
  extern __shared__ uint4 shared[];
  const int64_t B = a.shape.B, T = a.shape.T, H = a.shape.H;
  const Member member(plan, flags);
  const Place place(plan);
  const Lane<NT> at(plan, place, member.team, member.rank, B, H);
  const float* dts = static_cast<const float*>(a.dt);
  const float* kept_z = static_cast<const float*>(a.z);
  const float* trail = static_cast<const float*>(a.trail);
  const bf16* grad_y = static_cast<const bf16*>(a.grad_y);
  bf16* grad_z = static_cast<bf16*>(a.grad_z);

  const int gate_depth = plan.depth / G;
  const int64_t tile_stride = int64_t(plan.depth) / kPair * 64;
  uint4* matrix = shared;
  char* buffers = reinterpret_cast<char*>(matrix + plan.unit_tiles * tile_stride);
  const bool alone = plan.members == 1;
  const int stride = whole_stride(plan.depth);
  float* scratch = reinterpret_cast<float*>(
      buffers + (alone ? int64_t(plan.rows) * stride
                       : int64_t(kBuffers) * plan.rows * chunk_stride(plan.chunk)));
  const int64_t team_numbers = int64_t(plan.rows) * plan.depth;
  const int64_t side = team_numbers * plan.teams;

  const bf16* weight = static_cast<const bf16*>(a.weight_h);
  const int64_t first_unit = int64_t(member.rank) * plan.unit_tiles * kUnitTile;
  load_matrix(matrix, plan.unit_tiles, plan.depth, [&](int tile, int unit, int kk) {
    const int64_t u = first_unit + tile * kUnitTile + unit, j = kk % gate_depth;
    return u < H && j < H ? bits(weight[(int64_t(kk / gate_depth) * H + j) * H + u]) : uint16_t(0);
  });
  if (alone)
    for (int i = threadIdx.x; i < plan.rows * stride / 16; i += blockDim.x)
      reinterpret_cast<uint4*>(buffers)[i] = {0, 0, 0, 0};
  __syncthreads();

  float d[S][NT][4], dq[Sizes<Cell>::kQ][NT][4];  // gradients of the states, of what was prepared
  clear(d);
  clear(dq);
  int64_t length[NT][2];
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      length[n][j] = at.live[n][j] ? (a.lengths ? a.lengths[at.row[n][j]] : T) : 0;
      if (!at.live[n][j] || !a.grad_last) continue;
#pragma unroll
      for (int i = 0; i < S; ++i) {
        const float2 two = at.pair.load(static_cast<const float*>(a.grad_last) +
                                        (i * B + at.row[n][j]) * H + at.unit);
        d[i][n][j] = two.x;
        d[i][n][2 + j] = two.y;
      }
    }
  float v[2][Sizes<Cell>::kK], q[2][Sizes<Cell>::kQ];
  prepare<Cell>(at, static_cast<const float*>(a.vectors), k, H, v, q);

  // What a step reads besides d, fetched while the members wait for each other.
  float2 z[G][NT][2], before[S][NT][2], dy[NT][2];
  const auto fetch = [&](int64_t t) {
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const bool on = t >= 0 && t < length[n][j];
        const int64_t here = at.row[n][j] * T + t;
#pragma unroll
        for (int g = 0; g < G; ++g)
          z[g][n][j] = on ? at.pair.load(kept_z + here * G * H + g * H + at.unit) : float2{0, 0};
        int64_t m = 0;
#pragma unroll
        for (int i = 0; i < S; ++i)
          before[i][n][j] =
              Sizes<Cell>::reads(i) && on
                  ? at.pair.load(trail + ((m * B + at.row[n][j]) * T + t) * H + at.unit)
                  : float2{0, 0},
          m += Sizes<Cell>::reads(i);
        dy[n][j] = grad_y && on ? at.pair.load(grad_y + here * H + at.unit) : float2{0, 0};
      }
  };
  fetch(T - 1);

  for (int64_t t = T - 1, round = 0; t >= 0; --t, ++round) {
    float dz[G][NT][4];
    clear(dz);
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const bool on = t < length[n][j];
        const float dt = dts && on ? dts[at.row[n][j] * T + t] : 1.0f;
#pragma unroll
        for (int u = 0; u < 2; ++u) {
          const int e = 2 * u + j;
          float ze[G], se[S], de[S], dze[G], dse[S], dqe[Sizes<Cell>::kQ] = {};
#pragma unroll
          for (int g = 0; g < G; ++g) ze[g] = u ? z[g][n][j].y : z[g][n][j].x;
#pragma unroll
          for (int i = 0; i < S; ++i) {
            se[i] = u ? before[i][n][j].y : before[i][n][j].x;
            de[i] = d[i][n][e];
          }
          de[0] += u ? dy[n][j].y : dy[n][j].x;
          Cell::template backward<M>(ze, se, q[u], k.value, dt, de, dze, dse, dqe);
#pragma unroll
          for (int g = 0; g < G; ++g) dz[g][n][e] = on ? dze[g] : 0.0f;
#pragma unroll
          for (int i = 0; i < S; ++i) d[i][n][e] = on ? dse[i] : d[i][n][e];
#pragma unroll
          for (int i = 0; i < Q; ++i) dq[i][n][e] += on ? dqe[i] : 0.0f;
        }
      }
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!at.live[n][j]) continue;
        bf16* to = alone ? reinterpret_cast<bf16*>(buffers + int64_t(at.slot[n][j]) * stride)
                         : exchange + (round & 1) * side + member.team * team_numbers +
                               int64_t(at.slot[n][j]) * plan.depth;
        const Pair both{at.pair.first, at.pair.second, at.pair.second};
#pragma unroll
        for (int g = 0; g < G; ++g)
          both.store(to + g * gate_depth + at.unit, dz[g][n][j], dz[g][n][2 + j]);
      }
    if (alone)
      __syncthreads();
    else
      member.announce(uint32_t(round + 1));
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (at.live[n][j])
#pragma unroll
          for (int g = 0; g < G; ++g)
            at.pair.store(grad_z + (at.row[n][j] * T + t) * G * H + g * H + at.unit, dz[g][n][j],
                          dz[g][n][2 + j]);
    fetch(t - 1);
    float dh[1][NT][4];
    clear(dh);
    const uint4* mine = matrix + int64_t(place.unit_tile) * tile_stride;
    if (alone) {
      const int pairs = plan.depth / kPair;
      multiply_pairs(dh, mine, tile_stride, 0, buffers, stride, pairs * place.split / plan.splits,
                     pairs * (place.split + 1) / plan.splits, place);
      __syncthreads();
    } else {
      member.wait(uint32_t(round + 1));
      multiply_global(dh, mine, tile_stride,
                      exchange + (round & 1) * side + member.team * team_numbers, buffers, plan,
                      place);
    }
    add_splits(dh, scratch, plan, place);
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) d[0][n][e] += dh[0][n][e];
  }
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (!at.live[n][j]) continue;
#pragma unroll
      for (int i = 0; i < S; ++i)
        at.pair.store(static_cast<float*>(a.grad_state) + (i * B + at.row[n][j]) * H + at.unit,
                      d[i][n][j], d[i][n][2 + j]);
      float dv[2][Sizes<Cell>::kK];
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        float dqe[Sizes<Cell>::kQ];
#pragma unroll
        for (int i = 0; i < Sizes<Cell>::kQ; ++i) dqe[i] = dq[i][n][2 * u + j];
        Cell::template prepare_backward<M>(v[u], k.value, dqe, dv[u]);
      }
#pragma unroll
      for (int i = 0; i < K; ++i)
        at.pair.store(static_cast<float*>(a.grad_vectors) + (i * B + at.row[n][j]) * H + at.unit,
                      dv[0][i], dv[1][i]);
    }
}

struct Device {
  int blocks;            // that can run at once, one an SM
  int64_t shared_bytes;  // of one
};

Device current_device() {
  int device = 0, blocks = 0, bytes = 0, major = 0;
  const bool fine =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
          cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess;
  require(fine, "no CUDA device");
  return {major >= 8 ? blocks : 0, bytes};
}

// The cheapest way to spread a layer over the device, by a count of cycles a step; members = 0
// where none fits.
Plan plan_for(const Device& device, int64_t B, int64_t H, int gates, bool backward) {
  Plan best{};
  double least = 0;
  const int64_t tiles = (H + kUnitTile - 1) / kUnitTile;
  const int products = backward ? 1 : gates;  // unit tiles' rows of A
  const int depth = int(round_up(H, kPair)) * (backward ? gates : 1);
  for (int unit_tiles = 1; unit_tiles <= std::min<int64_t>(tiles, kMaxWarps); ++unit_tiles) {
    const int64_t members = (tiles + unit_tiles - 1) / unit_tiles;
    if (members > device.blocks) continue;
    const int64_t most = std::min<int64_t>(device.blocks / members, (B + kRowTile - 1) / kRowTile);
    for (int row_tiles = 1; row_tiles <= (gates > 4 ? 1 : 2); ++row_tiles)
      for (int64_t teams = most; teams >= 1; teams = teams > 1 ? teams / 2 : 0) {
        const int step = kRowTile * row_tiles;
        const int rows = int(round_up((B + teams - 1) / teams, step));
        Plan p{int(members),
               int((B + rows - 1) / rows),
               unit_tiles,
               rows,
               row_tiles,
               rows / step,
               1,
               depth,
               kChunk,
               0};
        if (p.warps() > kMaxWarps) continue;
        while (p.warps() * 2 <= 8 && p.splits * 2 <= depth / kPair && p.splits < 4) p.splits *= 2;
        const int64_t matrix = int64_t(unit_tiles) * products * depth / kPair * 1024;
        const auto buffers = [&] {
          return members == 1 ? int64_t(rows) * whole_stride(depth)
                              : int64_t(kBuffers) * rows * chunk_stride(p.chunk);
        };
        const int64_t scratch =
            int64_t(unit_tiles) * p.row_groups * (p.splits - 1) * products * row_tiles * 512;
        while (p.chunk > kPair * p.splits && matrix + buffers() + scratch > device.shared_bytes)
          p.chunk /= 2;
        p.shared_bytes = matrix + buffers() + scratch;
        if (p.shared_bytes > device.shared_bytes) continue;
        const double products_run = double(unit_tiles) * products * depth / 16 * rows / kRowTile;
        const double mma_cycles = products_run * 10 / std::min(4, p.warps());
        const double x_bytes = double(rows) * depth * 2;
        const double shared_cycles =
            (double(matrix) * p.row_groups + x_bytes * (unit_tiles + 1)) / 128;
        const double exchange =
            members == 1 ? 100 : 5000 + x_bytes * double(members) * p.teams / 3000;
        const double cell = double(unit_tiles) * kUnitTile * rows * 60 / 128;
        const double cycles = std::max(mma_cycles, shared_cycles) + exchange + cell;
        if (best.members == 0 || cycles < least) best = p, least = cycles;
      }
  }
  return best;
}

int64_t exchange_bytes(const Plan& p) {
  return p.members == 1 ? 0 : round_up(2 * int64_t(p.teams) * p.rows * p.depth * 2, 16);
}
int64_t flag_bytes(const Plan& p) { return round_up(int64_t(p.teams) * p.members * 4, 16); }

// Calls f(Cell{}) for the cell of that name.
template <class Function>
auto dispatch(const std::string& name, const Function& f) {
#define TSM_CASE(cell) \
  if (name == cells::cell::kName) return f(cells::cell{});
  TSM_FOR_EACH_CELL(TSM_CASE)
#undef TSM_CASE
  throw Error("cell '" + name + "' is not compiled in");
}

void check(cudaError_t status) {
  require(status == cudaSuccess, std::string("CUDA: ") + cudaGetErrorString(status));
}

template <class Cell, class Args, class Kernel>
void launch(Kernel kernel, const Plan& plan, const Args& args, void* workspace, uintptr_t stream) {
  Constants<Cell> k{};
  for (int i = 0; i < Cell::kConstants; ++i) k.value[i] = float(args.constants[i]);
  check(cudaMemsetAsync(workspace, 0, size_t(exchange_bytes(plan) + flag_bytes(plan)),
                        cudaStream_t(stream)));
  bf16* exchange = static_cast<bf16*>(workspace);
  auto* flags = reinterpret_cast<uint32_t*>(static_cast<char*>(workspace) + exchange_bytes(plan));
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             int(plan.shared_bytes)));
  Plan p = plan;
  Args a = args;
  void* parameters[] = {&p, &a, &k, &exchange, &flags};
  check(cudaLaunchCooperativeKernel(kernel, dim3(unsigned(plan.members * plan.teams)),
                                    dim3(unsigned(plan.warps() * 32)), parameters,
                                    size_t(plan.shared_bytes), cudaStream_t(stream)));
}

}  // namespace

int64_t recurrence_cuda_workspace(const std::string& cell, int64_t B, int64_t H, bool backward) {
  const int gates = dispatch(cell, [](auto c) { return decltype(c)::kGates; });
  const Plan plan = plan_for(current_device(), B, H, gates, backward);
  return plan.members == 0 ? -1 : exchange_bytes(plan) + flag_bytes(plan);
}

void recurrence_forward_cuda(const std::string& cell, const RecurrenceForward& a, void* workspace,
                             uintptr_t stream) {
  dispatch(cell, [&](auto c) {
    using Cell = decltype(c);
    const Plan plan = plan_for(current_device(), a.shape.B, a.shape.H, Cell::kGates, false);
    require(plan.members > 0, "the layer does not fit on the chip");
    if constexpr (Cell::kGates <= 4)
      if (plan.row_tiles == 2)
        return launch<Cell>(forward_kernel<Cell, 2>, plan, a, workspace, stream);
    launch<Cell>(forward_kernel<Cell, 1>, plan, a, workspace, stream);
  });
}

void recurrence_backward_cuda(const std::string& cell, const RecurrenceBackward& a, void* workspace,
                              uintptr_t stream) {
  dispatch(cell, [&](auto c) {
    using Cell = decltype(c);
    const Plan plan = plan_for(current_device(), a.shape.B, a.shape.H, Cell::kGates, true);
    require(plan.members > 0, "the layer does not fit on the chip");
    if constexpr (Cell::kGates <= 4)
      if (plan.row_tiles == 2)
        return launch<Cell>(backward_kernel<Cell, 2>, plan, a, workspace, stream);
    launch<Cell>(backward_kernel<Cell, 1>, plan, a, workspace, stream);
  });
}

}  // namespace tsm
