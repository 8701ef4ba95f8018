// Steps of many streams on Hopper GPUs (compute capability 9.0). One launch computes
// z = [x, h] [W, U]^T and the cell in bfloat16, for all steps if all blocks can run at the same
// time.
//
// x, h and the weights are stored in *blocks* that are 64 numbers deep: [row tile][block of
// depth][rows of the tile][64]. The 16-byte pieces of a row are swizzled as the tensor cores read
// them from shared memory, so that a block is loaded with one copy. A row tile is 128 streams; for
// the weights it is all gates of step_units(G) units, gate by gate.
#pragma once
#include <cstdint>

#include "kernels/cuda/stream/stream.h"

namespace tsm::cuda {

constexpr int kStepRows = 128, kStepDepth = 64;
constexpr int step_units(int gates) { return gates <= 4 ? 64 : 32; }

constexpr int64_t depth_blocks(int64_t depth) { return (depth + kStepDepth - 1) / kStepDepth; }
constexpr int64_t row_tiles(int64_t rows) { return (rows + kStepRows - 1) / kStepRows; }
// Bytes of activations: rows x depth.
constexpr int64_t blocked_bytes(int64_t rows, int64_t depth) {
  return row_tiles(rows) * depth_blocks(depth) * kStepRows * kStepDepth * 2;
}

struct StepsSm90 {
  CellArguments layer;
  Rows rows;
  const int32_t* active;   // as in `rows`, on the host
  const void* x;           // blocked, x_blocks of depth (0: none), x_step bytes per step
  void* h;                 // blocked: before the slice, then after each step, h_step bytes each
  int64_t x_step, h_step;  //
  int x_blocks, h_blocks;  //
  const void* weights;     // from pack_step
  const float* bias;       // [G H], or
  const float* table;      // [.., G H] initial values of z, and
  const int32_t* index;    // [rows] the row of the table
  uint32_t* h_ready;       // [row tiles] counts blocks that wrote h, from 0 (unused if steps = 1)
  bool plain;              // also write rows of layer.y
};

struct StepCellSm90 : CellInfo {
  void (*run)(const StepsSm90& steps, void* stream);
};

// Null if this build has no such kernel for the cell.
const StepCellSm90* find_step_sm90(unsigned long long hash);

int64_t step_weight_bytes(int gates, int64_t I, int64_t H);
// Packs both matrices from the layout of kernels/cuda/stream/product.h (kBFloat16). If w is null,
// only U.
void pack_step(int gates, int64_t I, int64_t H, const void* w, int64_t w_depth, const void* u,
               int64_t u_depth, void* weights, void* stream);
// Rows of a slice, by `index` or in order, and the blocks for them.
struct BlockedInput {
  const void* x = nullptr;         // [.., stride]; null: none
  int64_t stride = 0, depth = 0;   // in numbers
  const int32_t* index = nullptr;  // [rows]; null: in order
  int64_t step_bytes = 0;          // from one step to the next
  void* blocked = nullptr;
};
// Converts to blocks, in one launch: h before the slice, and the input rows if there are any.
void block_slice(const CellArguments& layer, const Rows& rows, const BlockedInput& input, void* h,
                 void* stream);

}  // namespace tsm::cuda
