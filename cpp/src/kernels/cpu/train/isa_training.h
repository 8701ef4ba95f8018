// The interface of one instruction set for training, in addition to isa.h: one step of one row of a
// cell, forward and backward, and conversion of bfloat16 rows. Its implementation (isa_train.cc) is
// compiled once per instruction set.
#pragma once
#include <cstdint>

#include "core/bfloat16.h"
#include "kernels/cell_table.h"

namespace tsm {

struct Isa;

// The inputs of both directions. Dimensions are named as in recurrence.h; Q is the number of
// prepared vectors.
template <class F>
struct TrainingRow {
  int64_t H;
  const F* gates;      // [G*H]: z in forward, the activated gates in backward
  const F* prepared;   // [Q,H], from `prepare`
  const F* constants;  //
  F dt;
};

template <class F>
struct TrainingForward {
  TrainingRow<F> row;
  F* const* state;   // S pointers to [H], updated in place
  F* const* before;  // S pointers that receive the state before the step, or null
  F* active;         // [G*H]: output for the activated gates, may be z itself; or null
  F* y;              // [H]: a second output for the new h, or null
};

template <class F>
struct TrainingBackward {
  TrainingRow<F> row;
  const F* const* before;  // S pointers to the states before the step; null if not read
  const F* grad_y;         // [H], added to the gradient of h; or null
  F* const* grad;  // S pointers to [H]: gradient of the states after the step, then before it
  F* grad_z;       // [G*H], may be `gates` itself
  double* grad_prepared;  // [Q,H]: this row's sum over the steps, accumulated
};

template <class F>
struct CellTraining : CellInfo {
  void (*prepare)(int64_t H, const F* vectors, const F* constants, F* prepared);
  void (*forward)(const TrainingForward<F>& step);
  void (*backward)(const TrainingBackward<F>& step);
  void (*prepare_backward)(int64_t H, const F* vectors, const F* constants, const F* grad_prepared,
                           F* grad_vectors);
};

struct IsaTraining {
  const char* name;  // as the Isa's
  const CellTraining<float>* cells;
  int cell_count;
  void (*widen)(const bfloat16* from, int64_t n, float* to);
  void (*round)(const float* from, int64_t n, bfloat16* to);  // nearest even, as bfloat16(float)
  // to[j, i] = from[i, j]; strides in elements.
  void (*transpose)(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to,
                    int64_t to_stride);
  // sums[j] += from[0, j], from[1, j], ..., one after the other.
  void (*add_rows)(const float* from, int64_t stride, int64_t rows, int64_t columns, float* sums);
};

const IsaTraining& training_of(const Isa& isa);

// float64: one scalar implementation, with the same cells in the same order.
const CellTraining<double>* training_cells_f64();

}  // namespace tsm
