// A cell's program as data.
#pragma once
#include <cstdint>

namespace tsm {

// Of the gates, states, vectors or constants of a cell: as register_cell (plugin/cells/base.py) and
// model files (export/FORMAT.md) have it.
constexpr int kMostNames = 32;

// A cell's program as data, for cells that are not compiled in. Values are numbered: first the
// inputs in the order z (G), states (S), vectors (K), constants (C), dt, then the literals, then
// one value per instruction.
struct Instruction {
  enum Op : int32_t {
    kAdd,
    kSub,
    kMul,
    kDiv,
    kNeg,
    kExp,
    kLog,
    kSigmoid,
    kTanh,
    kFastSigmoid,
    kSoftsignGate
  } op;
  int32_t a, b;  // numbers of the arguments; b is not read by functions of one
};
struct Program {
  static constexpr int kMaxValues = 256;
  int gates, states, vectors, constants;
  int literal_count, instruction_count;
  const float* literals;
  const Instruction* instructions;
  const int32_t* outputs;  // [states]: the value that becomes each state
};

}  // namespace tsm
