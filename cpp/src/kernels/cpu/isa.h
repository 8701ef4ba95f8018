// The interface of one instruction set: tables of plain functions over raw memory.
//
// The files behind them (isa_stream.cc, isa_train.cc) are compiled once per instruction set, each
// with its own flags and in its own namespace; the rest of the code sees only this file. Every
// result depends only on its own row and has a fixed order of operations. The bits are the same for
// any number of rows, any split of the outputs and any number of threads.
#pragma once
#include <cstdint>

#include "kernels/cell_table.h"
#include "kernels/program.h"
#include "kernels/weights.h"

namespace tsm {

constexpr int64_t kNearBytes = 1 << 20;  // largest matrix that stays in L2 next to other data

// The accumulators of a product: rows of float (double), `stride` elements apart. Sums start from
// the current values or, if `start` [outputs] is given, every row starts from that.
struct Accumulators {
  void* rows;
  int64_t stride;
  const void* start = nullptr;
};

// The data that is read next, after a product with more than a few rows (Kind::kOtherRows). If the
// matrix exceeds L2, the product prefetches the beginning of this data. Otherwise only float
// products with AVX-512 prefetch as much of it as they can; the others have no spare issue slots.
struct Next {
  const void* data = nullptr;
  int64_t bytes = 0;
  Next after(int64_t count) const {
    return {static_cast<const char*>(data) + count, bytes - count};
  }
};

// Products with a matrix that was packed once for this instruction set.
struct MatrixKernels {
  // Size of the packed matrix, which must be 64-byte aligned. Negative if there are too many inputs
  // for exact sums (kInt8: more than 2^17). Except with kInt8, panels follow each other: the
  // outputs from n * panel on may be packed separately, packed_bytes(n * panel, inputs) bytes after
  // the start, if they include the last three panels.
  int64_t (*packed_bytes)(int64_t outputs, int64_t inputs);
  void (*pack)(const MatrixSource& w, void* packed);
  // Bytes of one row of activations as `multiply` reads it, a multiple of 64.
  int64_t (*encoded_bytes)(int64_t inputs);
  void (*encode)(const void* x, int64_t inputs, void* encoded);  // x: float (double with kFloat64)
  // The number of outputs per panel, except for the last three panels: those may be wider, and the
  // last one narrow or empty. `multiply` takes any range of panels.
  int panel;
  int64_t (*first)(int64_t outputs, int64_t panel);  // the first output of a panel
  // sums[r, :] += x[r, :] w^T over the outputs of panels [first, last); x: consecutive encoded
  // rows, aligned to their elements.
  void (*multiply)(const void* packed, int64_t outputs, int64_t inputs, int64_t rows, const void* x,
                   const Accumulators& sums, int64_t first, int64_t last, const Next& next);
};

// One step of one row: reads z [G*H] and updates S states of width H in place.
template <class F>
struct CellStep {
  int64_t H;
  const F* z;
  F* const* state;    // S pointers
  const F* prepared;  // [Q,H], from `prepare`
  const F* constants;
  F dt;
};

template <class F>
struct CellForward : CellInfo {
  void (*prepare)(int64_t H, const F* vectors, const F* constants, F* prepared);
  void (*forward)(const CellStep<F>& step);
};

struct Isa {
  const char* name;                     // "scalar", "neon", "avx2", ...
  MatrixKernels matrix[kWeightsKinds];  // by Weights; kFloat64 is null except in the base set
  const CellForward<float>* cells;
  int cell_count;
  // One step of `program`; step.prepared holds its vectors [K,H] as they are, not prepared.
  void (*interpret)(const Program& program, const CellStep<float>& step);
  // log(sum_i exp(x_i)) of n >= 1 numbers.
  float (*log_sum_exp)(const float* x, int64_t n);
  // Whether all of n numbers are finite.
  bool (*all_finite)(const float* x, int64_t n);
};

// Instruction sets of this build that this machine can run, lowest first.
struct Isas {
  const Isa* const* begin_;
  int count;
  const Isa* const* begin() const { return begin_; }
  const Isa* const* end() const { return begin_ + count; }
};
Isas host_isas();

// The highest of them, or the one named in the environment variable TSM_ISA. Throws tsm::Error if
// TSM_ISA names none of them.
const Isa& active_isa();

}  // namespace tsm
