// A cell's program as data.
#pragma once
#include <cstdint>

#include "cells/generated/primitives.h"

namespace tsm {

// A cell's program as data, for cells that are not compiled in. Values are numbered: first the
// inputs in the order z (G), states (S), vectors (K), constants (C), dt, then the literals, then
// one value per instruction.
struct Instruction {
  Operation op;
  int32_t a, b;  // numbers of the arguments; b is unused by functions of one argument
};
struct Program {
  int gates, states, vectors, constants;
  int literal_count, instruction_count;
  const float* literals;
  const Instruction* instructions;
  const int32_t* outputs;  // [states]: the value that becomes each state
};

}  // namespace tsm
