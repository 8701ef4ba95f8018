// Checks and dispatch of the fused recurrence: by name of the cell, then by element type.
#include "kernels/recurrence.h"

#include "cells/all.h"
#include "kernels/error.h"
#include "kernels/recurrence_cpu.h"

namespace tsm {

#define TSM_DECLARE(cell)                                   \
  extern template class RecurrenceCpu<cells::cell, float>;  \
  extern template class RecurrenceCpu<cells::cell, double>; \
  extern template class RecurrenceCpu<cells::cell, bfloat16>;
TSM_FOR_EACH_CELL(TSM_DECLARE)
#undef TSM_DECLARE

namespace {

struct Kernels {
  CellInfo info;
  void (*forward[3])(const RecurrenceForward&);  // indexed by DType
  void (*backward[3])(const RecurrenceBackward&);
};

template <class Cell>
Kernels kernels_of() {
  return {{Cell::kName, Cell::kGates, Cell::kStates, Cell::kVectors, Cell::kConstants, Cell::kReads,
           Cell::kTakesDt},
          {RecurrenceCpu<Cell, float>::forward, RecurrenceCpu<Cell, double>::forward,
           RecurrenceCpu<Cell, bfloat16>::forward},
          {RecurrenceCpu<Cell, float>::backward, RecurrenceCpu<Cell, double>::backward,
           RecurrenceCpu<Cell, bfloat16>::backward}};
}

const std::vector<Kernels>& table() {
  static const std::vector<Kernels> kernels = {
#define TSM_ENTRY(cell) kernels_of<cells::cell>(),
      TSM_FOR_EACH_CELL(TSM_ENTRY)
#undef TSM_ENTRY
  };
  return kernels;
}

const Kernels& find(const std::string& cell) {
  for (const Kernels& k : table())
    if (k.info.name == cell) return k;
  throw Error("cell '" + cell + "' is not compiled in; `make cells` and a rebuild compile it");
}

void check(const CellInfo& cell, const RecurrenceShape& shape, const double* constants,
           const void* vectors, const void* dt, const int64_t* lengths) {
  const int64_t B = shape.B, T = shape.T, H = shape.H;
  require(B >= 0 && T >= 0 && H >= 1, "B, T, H = " + std::to_string(B) + ", " + std::to_string(T) +
                                          ", " + std::to_string(H) +
                                          "; accepted: B >= 0, T >= 0, H >= 1");
  require(cell.constants == 0 || constants, cell.name + ": constants are missing");
  require(cell.vectors == 0 || vectors, cell.name + ": vectors are missing");
  require(!dt || cell.takes_dt, "dt was given, but cell '" + cell.name + "' takes none");
  for (int64_t b = 0; lengths && b < B; ++b)
    require(lengths[b] >= 0 && lengths[b] <= T, "lengths[" + std::to_string(b) +
                                                    "] = " + std::to_string(lengths[b]) +
                                                    "; accepted: 0 to T = " + std::to_string(T));
}

}  // namespace

const std::vector<CellInfo>& compiled_cells() {
  static const std::vector<CellInfo> cells = [] {
    std::vector<CellInfo> all;
    for (const Kernels& k : table()) all.push_back(k.info);
    return all;
  }();
  return cells;
}

void recurrence_forward(const std::string& cell, DType dtype, const RecurrenceForward& a) {
  const Kernels& k = find(cell);
  check(k.info, a.shape, a.constants, a.vectors, a.dt, a.lengths);
  const bool some = a.shape.B > 0 && a.shape.T > 0;
  require(a.weight_h && (a.shape.B == 0 || (a.state && a.last)), "weight_h, state or last is null");
  require(!some || (a.zx && a.y), "zx or y is null");
  k.forward[int(dtype)](a);
}

void recurrence_backward(const std::string& cell, DType dtype, const RecurrenceBackward& a) {
  const Kernels& k = find(cell);
  check(k.info, a.shape, a.constants, a.vectors, a.dt, a.lengths);
  const bool some = a.shape.B > 0 && a.shape.T > 0;
  require(a.weight_h && (a.shape.B == 0 || a.grad_state), "weight_h or grad_state is null");
  require(k.info.vectors == 0 || a.grad_vectors, "grad_vectors is null");
  require(!some || (a.z && a.grad_z && (k.info.reads == 0 || a.trail)),
          "z, trail or grad_z is null");
  k.backward[int(dtype)](a);
}

}  // namespace tsm
