// Names of dtypes and cells as Python passes them.
#pragma once
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/recurrence.h"

namespace tsm::bindings {

inline DType dtype_named(const std::string& name) {
  if (name == "float32") return DType::kFloat32;
  if (name == "float64") return DType::kFloat64;
  if (name == "bfloat16") return DType::kBFloat16;
  throw Error("dtype '" + name + "'; accepted: float32, float64, bfloat16");
}

inline void check_constants(const std::string& cell, const std::vector<double>& constants) {
  const int wanted = compiled_cell(cell).constants;
  if (int(constants.size()) != wanted)
    throw Error("cell '" + cell + "' takes " + std::to_string(wanted) + " constants, got " +
                std::to_string(constants.size()));
}

}  // namespace tsm::bindings
