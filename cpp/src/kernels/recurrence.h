// The recurrence of one layer over one chunk, for training: the interface shared by the CPU
// (kernels/layer.h, which computes zx itself) and the GPU (kernels/cuda/train/recurrence.h).
//
//   z_t = zx_t + U h_{t-1},   states_t = cell(z_t, states_{t-1}),   y_t = h_t
//
// Dimensions: B rows of the batch, T steps, H units, G gates, S states, K vectors, R states whose
// previous value the cell reads. D is the element type of zx, U and y; F the type of states and
// arithmetic: float, or double if D is double. All arrays are row-major and dense. On the CPU, z,
// saved_states and grad_z are ordered by time: [T,B,..], so that the rows of a step are neighbours.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cell_table.h"

namespace tsm {

enum class DType { kFloat32, kFloat64, kBFloat16 };

struct RecurrenceShape {
  int64_t B, T, H;
  int threads = 1;  // threads split the batch; the result does not depend on their number
};

struct RecurrenceForward {
  RecurrenceShape shape;
  const void* zx;           // D [B,T,G*H]: W x + b
  const void* weight_h;     // D [G*H,H]: U; on the CPU null: z = zx
  const void* state;        // F [S,B,H]: before the chunk
  const void* vectors;      // F [K,H]; may be null if K = 0
  const double* constants;  // one per constant of the cell
  const void* dt;           // F [B,T], or null: every step lasts 1
  const int64_t* lengths;   // [B], or null: every row has T steps
  void* y;                  // D [B,T,H]: 0 past a row's length
  void* last;               // F [S,B,H]: each row's states after its length
  void* z;                  // F [B,T,G*H]: kept for backward (CPU: the gates, activated), or null
  void* saved_states;       // F [R,B,T,H]: states before each step, kept for backward, or null
};

struct RecurrenceBackward {
  RecurrenceShape shape;
  const void* weight_h;      // D [G*H,H]; on the CPU null, as in forward
  const void* vectors;       // F [K,H]
  const double* constants;   //
  const void* dt;            // F [B,T] or null
  const int64_t* lengths;    // [B] or null
  const void* z;             // F [B,T,G*H], from forward
  const void* saved_states;  // F [R,B,T,H], from forward
  const void* grad_y;        // D [B,T,H], or null: zero
  const void* grad_last;     // F [S,B,H], or null: zero
  void* grad_z;              // D [B,T,G*H]
  void* grad_state;          // F [S,B,H]
  void* grad_vectors;        // F [K,H]; may be null if K = 0
};

const std::vector<CellInfo>& compiled_cells();
const CellInfo& compiled_cell(const std::string& name);  // throws tsm::Error if there is none

}  // namespace tsm
