// Streaming on a GPU: the kernels of the generated cells, and the small kernels around them.
//
// A slice of some streams is laid out as in engine/cpu/layer.h: rows are ordered by step, and
// streams are sorted so that those with input left come first; row first[t] + i belongs to stream
// i. `y` holds activations: one row per stream (h before the slice), then one per row of the slice.
// Activations are float with kFloat32 weights, bfloat16 with the others; states are float.
//
// Arrays are on the device unless stated otherwise. Calls are asynchronous on `stream` (a
// cudaStream_t).
#pragma once
#include <cstdint>

#include "kernels/cell_table.h"
#include "kernels/weights.h"

namespace tsm::cuda {

constexpr int kMostCellStates = 8, kMostCellConstants = 8;

struct Rows {
  int streams, steps;
  const int32_t* active;  // [steps]
  const int32_t* first;   // [steps + 1]
  float* const* from;     // [streams] each stream's states before the slice
  float* const* to;       // [streams] destination of the states, may be the same
  const float* dt;        // [rows]; null: 1
};

// The inputs and outputs of the element-wise part of a layer.
struct CellArguments {
  int H;
  int at[kMostCellStates];              // offset of each state in a stream's states
  float constants[kMostCellConstants];  //
  const float* prepared;                // [Q,H]
  void* y;                              // [streams + rows, y_stride]
  int64_t y_stride;
  int* bad;  // set to the index of a non-finite state; may be host memory
};

// One step of all active rows: z [active, G H] is the input.
struct CellStepCuda {
  CellArguments layer;
  Rows rows;
  const float* z;
  int t;
  int active;  // active[t], on the host
};

// How the recurrence of a layer is distributed over the device (`plan_recurrence`).
struct RecurrencePlan {
  int unit_tiles;  // per block, 16 units each
  int members;     // blocks per team; a team holds the whole matrix
  int teams;
  int team_streams;  // streams per team, a multiple of 8
  int shared_tiles;  // a block's weight tiles that are in shared memory
  int shared_bytes, shared_limit;
};

// All steps of a slice in one launch: the recurrent weights stay on the chip.
struct RecurrenceCuda {
  CellArguments layer;
  Rows rows;
  RecurrencePlan plan;
  const float* z;          // [.., G H] = bias + W x
  const int32_t* z_index;  // [rows] the row of z to use; null: the same row
  const void* tiles;       // U, packed by pack_tiles
  const float* scale;      // [G H] with kInt8
  // The buffer through which blocks exchange h: exchange_words(...) words of 8 bytes, each a value
  // and a tag that identifies its step. It must be zero before the first call, and must not be
  // changed between calls. The tags of a call run from *tag + tags_before to *tag + tags_before +
  // steps, and must be larger than all earlier ones.
  void* exchange;
  const uint32_t* tag;
  uint32_t tags_before;
};

struct CudaCell : CellInfo {
  void (*step)(Weights kind, const CellStepCuda& step, void* stream);
  void (*recurrence)(Weights kind, const RecurrenceCuda& recurrence, void* stream);
};

// The cell whose program has this hash; null if it is not compiled in.
const CudaCell* find_cuda_cell(unsigned long long hash);

// Packs U [G H, H], given as rows of `kind` [G H, depth] (product.h), in the order in which the
// recurrence reads it.
int64_t tiles_bytes(Weights kind, int gates, int H);
void pack_tiles(Weights kind, int gates, int H, const void* w, int64_t depth, void* tiles,
                void* stream);

RecurrencePlan plan_recurrence(Weights kind, int gates, int H, int streams, int processors,
                               int shared_limit);
int64_t exchange_words(Weights kind, int H, int streams);

// Copies from pinned memory of the host to the device, in a kernel: for few bytes, a multiple of
// 16, that takes less time than a copy by the copy engine, for which the next kernel would wait.
void send_small(const void* from, void* to, int64_t bytes, void* stream);

// y[i] = h of stream i before the slice.
void encode_h(Weights kind, const CellArguments& layer, const Rows& rows, void* stream);
// x [rows, stride] = values [rows, width], padded with zeros.
void encode_values(Weights kind, const float* values, int64_t rows, int64_t width, void* x,
                   int64_t stride, void* stream);
// out [rows, width] = the rows `index` of table [.., width].
void gather_rows(const float* table, const int32_t* index, int64_t rows, int64_t width, float* out,
                 void* stream);
// out[r] = log p(token[r]) from the logits [rows, width].
void log_probs(const float* logits, const int32_t* tokens, int64_t rows, int64_t width, float* out,
               void* stream);

}  // namespace tsm::cuda
