// Host code and small kernels for many_streams_sm90.h: conversion to blocks, and the list of cells.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "cells/generated/all.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/stream/many_streams_sm90.h"

namespace tsm::cuda {

#ifdef TSM_SM90
#define TSM_DECLARE(cell) extern const StepCellSm90 k_step_##cell;
TSM_FOR_EACH_CELL(TSM_DECLARE)
#undef TSM_DECLARE
#endif

namespace {

constexpr int kVectors = kStepDepth / 8;  // of 16 bytes, in a row of a block

// The position of vector `vector` of row `row` in a block.
__device__ inline int swapped(int row, int vector) { return row * kVectors + (vector ^ (row & 7)); }

// One thread per 16-byte vector of the weights.
__global__ void pack(int gates, int units, int H, const uint4* w, int64_t w_vectors,
                     int64_t w_blocks, const uint4* u, int64_t u_vectors, int64_t blocks,
                     uint4* weights, int64_t count) {
  const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= count) return;
  const int rows = gates * units, vector = int(n % kVectors), row = int(n / kVectors % rows);
  const int64_t block = n / kVectors / rows % blocks, tile = n / kVectors / rows / blocks;
  const int64_t unit = tile * units + row % units, output = row / units * int64_t(H) + unit;
  uint4 found = {};
  if (unit < H) {
    found = block < w_blocks ? w[output * w_vectors + block * kVectors + vector]
                             : u[output * u_vectors + (block - w_blocks) * kVectors + vector];
  }
  weights[(n / kVectors / rows * rows) * kVectors + swapped(row, vector)] = found;
}

// Vector n of the input rows of step t.
__device__ inline void block_input(const Rows& rows, const BlockedInput& input, unsigned blocks,
                                   int t, unsigned n) {
  const unsigned vectors = blocks * kVectors, stream = n / vectors, vector = n % vectors;
  if (int(stream) >= rows.active[t]) return;
  const int64_t row = rows.first[t] + int(stream);
  const uint4 found = static_cast<const uint4*>(
      input.x)[(input.index ? input.index[row] : row) * (input.stride / 8) + vector];
  const int64_t block = int64_t(stream / kStepRows) * blocks + vector / kVectors;
  static_cast<uint4*>(input.blocked)[t * (input.step_bytes / 16) + block * kStepRows * kVectors +
                                     swapped(int(stream % kStepRows), int(vector % kVectors))] =
      found;
}

// Vector n of the streams' h; zeros past H.
__device__ inline void block_state(const CellArguments& a, const Rows& rows, unsigned blocks,
                                   uint4* blocked, unsigned n) {
  const unsigned vectors = blocks * kVectors, stream = n / vectors;
  if (int(stream) >= rows.streams) return;
  const int vector = int(n % vectors);
  // A state begins at a multiple of 64 bytes and is padded to one, so that both halves can be read.
  const auto* h = reinterpret_cast<const float4*>(rows.from[stream] + a.at[0] + vector * 8);
  __align__(16) float values[8] = {};
  if (vector * 8 < a.H) {
    *reinterpret_cast<float4*>(values) = h[0];
    *reinterpret_cast<float4*>(values + 4) = h[1];
  }
  __align__(16) __nv_bfloat16 found[8];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    found[i] = __float2bfloat16_rn(vector * 8 + i < a.H ? values[i] : 0.0f);
  const int64_t block = int64_t(stream / kStepRows) * blocks + vector / kVectors;
  blocked[block * kStepRows * kVectors + swapped(int(stream % kStepRows), vector % kVectors)] =
      *reinterpret_cast<const uint4*>(found);
}

// One thread per 16-byte vector; blockIdx.y: 0 is h, t + 1 the input of step t.
__global__ void block_vectors(const CellArguments a, const Rows rows, const BlockedInput input,
                              unsigned x_blocks, unsigned h_blocks, uint4* h) {
  const unsigned n = blockIdx.x * blockDim.x + threadIdx.x;
  ptx::start_next();  // the steps, which wait before they read the blocks
  if (blockIdx.y == 0) {
    block_state(a, rows, h_blocks, h, n);
  } else {
    block_input(rows, input, x_blocks, int(blockIdx.y) - 1, n);
  }
}

unsigned blocks_of(int64_t count) { return unsigned((count + 255) / 256); }

}  // namespace

const StepCellSm90* find_step_sm90(unsigned long long hash) {
#ifdef TSM_SM90
#define TSM_LOOK(cell) \
  if (k_step_##cell.hash == hash) return &k_step_##cell;
  TSM_FOR_EACH_CELL(TSM_LOOK)
#undef TSM_LOOK
#endif
  (void)hash;
  return nullptr;
}

int64_t step_weight_bytes(int gates, int64_t I, int64_t H) {
  const int64_t units = step_units(gates), tiles = (H + units - 1) / units;
  return tiles * gates * units * (depth_blocks(I) + depth_blocks(H)) * kStepDepth * 2;
}

void pack_step(int gates, int64_t I, int64_t H, const void* w, int64_t w_depth, const void* u,
               int64_t u_depth, void* weights, void* stream) {
  const int64_t w_blocks = w ? depth_blocks(I) : 0, blocks = w_blocks + depth_blocks(H);
  const int64_t count = step_weight_bytes(gates, w ? I : 0, H) / 16;
  pack<<<blocks_of(count), 256, 0, static_cast<cudaStream_t>(stream)>>>(
      gates, step_units(gates), int(H), static_cast<const uint4*>(w), w_depth / 8, w_blocks,
      static_cast<const uint4*>(u), u_depth / 8, blocks, static_cast<uint4*>(weights), count);
  check(cudaGetLastError(), "packing weights");
}

void block_slice(const CellArguments& layer, const Rows& rows, const BlockedInput& input, void* h,
                 void* stream) {
  const int64_t x_blocks = input.x ? depth_blocks(input.depth) : 0,
                h_blocks = depth_blocks(layer.H);
  const dim3 grid(blocks_of(rows.streams * std::max(x_blocks, h_blocks) * kVectors),
                  unsigned(input.x ? rows.steps : 0) + 1);
  block_vectors<<<grid, 256, 0, static_cast<cudaStream_t>(stream)>>>(
      layer, rows, input, unsigned(x_blocks), unsigned(h_blocks), static_cast<uint4*>(h));
  check(cudaGetLastError(), "reading inputs and states");
}

}  // namespace tsm::cuda
