// A whole layer on the CPU, forward and backward: the recurrence and the matrix products around it.
//
//   zx = W x + b;   dx = dz W,  dW = sum dz^T x,  db = sum dz,  dU = sum dz^T h_{t-1}
//
// Letters are as in recurrence.h; I is the number of inputs. x may be D or F; W, b and U are either
// all D or all F.
#pragma once
#include "kernels/recurrence.h"

namespace tsm {

struct LayerInput {
  int64_t I;
  const void* x;                // [B,T,I]
  const void* weight_x;         // [G*H,I]: W
  const void* bias;             // [G*H]; not read by backward
  bool full_precision_x;        // x and its gradient are F
  bool full_precision_weights;  // W, b, U and their gradients are F
};

struct LayerForward {
  RecurrenceForward recurrence;  // without zx; state may be null: zeros
  LayerInput input;
};

struct LayerBackward {
  // grad_z: F [T,B,G*H], memory for dz. It may be z itself, which is then overwritten; null: memory
  // is allocated for dz.
  RecurrenceBackward recurrence;
  LayerInput input;
  const void* h;        // F [B,H]: before the chunk, as in forward, or null: zeros
  const void* y;        // D [B,T,H], from forward
  void* grad_x;         // [B,T,I], or null: not wanted
  void* grad_weight_x;  // [G*H,I], or null
  void* grad_bias;      // [G*H]
  void* grad_weight_h;  // [G*H,H], or null
};

// Throw tsm::Error for an unknown cell, a size below 1, a missing array or a length outside [0, T].
void layer_forward(const std::string& cell, DType dtype, const LayerForward& args);
void layer_backward(const std::string& cell, DType dtype, const LayerBackward& args);

}  // namespace tsm
