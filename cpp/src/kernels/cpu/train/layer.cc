// Checks and dispatch of a layer, by cell name and element type; and the training tables of the
// instruction sets.
#include "kernels/layer.h"

#include "cells/generated/all.h"
#include "core/error.h"
#include "core/first_use.h"
#include "kernels/built_isas.h"
#include "kernels/cpu/train/passes.h"

namespace tsm {

#define TSM_DECLARE(isa)               \
  namespace isa {                      \
  const IsaTraining& training_table(); \
  }
TSM_FOR_EACH_ISA(TSM_DECLARE)
#undef TSM_DECLARE

const IsaTraining& training_of(const Isa& isa) {
  static const IsaTraining* const tables[] = {
#define TSM_ENTRY(isa) &isa::training_table(),
      TSM_FOR_EACH_ISA(TSM_ENTRY)
#undef TSM_ENTRY
  };
  for (const IsaTraining* table : tables)
    if (std::strcmp(table->name, isa.name) == 0) return *table;
  throw Error(std::string("instruction set '") + isa.name + "' has no kernels for training");
}

namespace {

// Position of the cell in every table.
int find(const std::string& cell) {
  const std::vector<CellInfo>& cells = compiled_cells();
  for (size_t i = 0; i < cells.size(); ++i)
    if (cells[i].name == cell) return int(i);
  throw Error("cell '" + cell + "' is not compiled in; `make cells` and a rebuild compile it");
}

// Calls f(TrainingKernels<D>) for the element type.
template <class Function>
void with_kernels(int cell, DType dtype, const Function& f) {
  const Isa& isa = active_isa();
  const IsaTraining& training = training_of(isa);
  switch (dtype) {
    case DType::kFloat32:
      return f(TrainingKernels<float>{training.cells[cell], isa.matrix[int(Weights::kFloat32)],
                                      training});
    case DType::kBFloat16:
      return f(TrainingKernels<bfloat16>{training.cells[cell], isa.matrix[int(Weights::kBFloat16)],
                                         training});
    case DType::kFloat64:  // only in the base set
      return f(TrainingKernels<double>{training_cells_f64()[cell],
                                       (*host_isas().begin())->matrix[int(Weights::kFloat64)],
                                       training});
  }
}

void check(const CellInfo& cell, const RecurrenceShape& shape, const LayerInput& input,
           const double* constants, const void* vectors, const void* dt, const int64_t* lengths) {
  const int64_t B = shape.B, T = shape.T, H = shape.H, I = input.I;
  require(B >= 1 && T >= 1 && H >= 1 && I >= 1,
          "B, T, H, I = " + std::to_string(B) + ", " + std::to_string(T) + ", " +
              std::to_string(H) + ", " + std::to_string(I) + "; accepted: 1 or more of each");
  require(input.x && input.weight_x, "x or weight_x is null");
  require(cell.constants == 0 || constants, std::string(cell.name) + ": constants are missing");
  require(cell.vectors == 0 || vectors, std::string(cell.name) + ": vectors are missing");
  require(!dt || cell.takes_dt,
          "dt was given, but cell '" + std::string(cell.name) + "' takes none");
  for (int64_t b = 0; lengths && b < B; ++b)
    require(lengths[b] >= 0 && lengths[b] <= T, "lengths[" + std::to_string(b) +
                                                    "] = " + std::to_string(lengths[b]) +
                                                    "; accepted: 0 to T = " + std::to_string(T));
}

}  // namespace

const std::vector<CellInfo>& compiled_cells() {
  static FirstUse<const std::vector<CellInfo>> all;
  return all.get([] {
#define TSM_ENTRY(cell) CellInfo::of<cells::cell>(),
    return std::make_unique<const std::vector<CellInfo>>(
        std::initializer_list<CellInfo>{TSM_FOR_EACH_CELL(TSM_ENTRY)});
#undef TSM_ENTRY
  });
}

const CellInfo& compiled_cell(const std::string& name) {
  return compiled_cells()[size_t(find(name))];
}

void layer_forward(const std::string& cell, DType dtype, const LayerForward& a) {
  const int k = find(cell);
  const RecurrenceForward& r = a.recurrence;
  check(compiled_cells()[size_t(k)], r.shape, a.input, r.constants, r.vectors, r.dt, r.lengths);
  require(r.y && r.last && a.input.bias, "y, last or bias is null");
  with_kernels(k, dtype, [&](const auto& kernels) { run_layer_forward(kernels, a); });
}

void layer_backward(const std::string& cell, DType dtype, const LayerBackward& a) {
  const int k = find(cell);
  const CellInfo& info = compiled_cells()[size_t(k)];
  const RecurrenceBackward& r = a.recurrence;
  check(info, r.shape, a.input, r.constants, r.vectors, r.dt, r.lengths);
  require(r.z && r.grad_state && (info.reads == 0 || r.saved_states) &&
              (info.vectors == 0 || r.grad_vectors),
          "z, saved_states, grad_state or grad_vectors is null");
  require(a.y && a.grad_bias && (r.weight_h || !a.grad_weight_h),
          "y, grad_bias or (with grad_weight_h) weight_h is null");
  with_kernels(k, dtype, [&](const auto& kernels) { run_layer_backward(kernels, a); });
}

}  // namespace tsm
