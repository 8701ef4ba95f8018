// A cell's program as stored in a model file, checked and numbered.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/files/json.h"
#include "kernels/program.h"

namespace tsm {

// The names that a program may use.
struct CellNames {
  std::vector<std::string> gates, states, vectors, constants;
  bool takes_dt;
};

class CellProgram {
 public:
  // Reads {"nodes": [[op, argument, ...], ...], "outputs": {state: reference}}; throws tsm::Error
  // (kBadFile) if it is invalid.
  CellProgram(const JsonField& program, const CellNames& names);

  // For Isa::interpret. The view refers to this object.
  Program view() const;
  // FNV-1a hash of the program and its names, as in the generated header of a compiled cell.
  uint64_t hash() const { return hash_; }

 private:
  int gates_, states_, vectors_, constants_;
  std::vector<float> literals_;
  std::vector<Instruction> instructions_;
  std::vector<int32_t> outputs_;
  uint64_t hash_;
};

}  // namespace tsm
