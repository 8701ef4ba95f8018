// One step of an interpreted cell. Each instruction processes a few registers of units at a time,
// so that its dispatch costs little.
#pragma once
#include "cells/generated/primitives.h"
#include "cells/simd.h"
#include "kernels/cpu/isa.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

struct Interpreter {
  using M = SimdFloat;
  using V = Floats;
  static constexpr int kVectors = 4, kUnits = kVectors * M::kLanes;
  struct Value {
    V v[kVectors];
  };

  static void run(const Program& p, const CellStep<float>& a) {
    Value values[kMostValues];
    const int vectors_at = p.gates + p.states, constants_at = vectors_at + p.vectors;
    const int dt_at = constants_at + p.constants, literals_at = dt_at + 1;
    const int results_at = literals_at + p.literal_count;
    for (int i = 0; i < p.constants; ++i) fill(values[constants_at + i], a.constants[i]);
    fill(values[dt_at], a.dt);
    for (int i = 0; i < p.literal_count; ++i) fill(values[literals_at + i], p.literals[i]);
    for (int64_t j = 0; j < a.H; j += kUnits) {
      const int n = a.H - j < kUnits ? int(a.H - j) : kUnits;
      for (int i = 0; i < p.gates; ++i) load(values[i], a.z + i * a.H + j, n);
      for (int i = 0; i < p.states; ++i) load(values[p.gates + i], a.state[i] + j, n);
      for (int i = 0; i < p.vectors; ++i) load(values[vectors_at + i], a.prepared + i * a.H + j, n);
      for (int i = 0; i < p.instruction_count; ++i) {
        const Instruction& instruction = p.instructions[i];
        const bool two = takes_two(instruction.op);
        apply(instruction.op, values[instruction.a], values[two ? instruction.b : instruction.a],
              values[results_at + i]);
      }
      for (int i = 0; i < p.states; ++i) store(values[p.outputs[i]], a.state[i] + j, n);
    }
  }

 private:
  template <class Function>
  TSM_CELL static void each(Value& to, const Function& f) {
    for (int i = 0; i < kVectors; ++i) to.v[i] = f(i);
  }
  static void fill(Value& to, float x) {
    each(to, [&](int) { return V(x); });
  }
  static void load(Value& to, const float* from, int n) {
    for (int i = 0; i < kVectors; ++i) {
      const int left = n - i * M::kLanes;
      to.v[i] = left >= M::kLanes ? M::load(from + i * M::kLanes, M::kLanes)
                : left > 0        ? M::load(from + i * M::kLanes, left)
                                  : V(0.0f);
    }
  }
  static void store(const Value& from, float* to, int n) {
    for (int i = 0; i < kVectors && n > i * M::kLanes; ++i) {
      const int left = n - i * M::kLanes;
      M::store(from.v[i], to + i * M::kLanes, left < M::kLanes ? left : M::kLanes);
    }
  }
  static void apply(Operation op, const Value& a, const Value& b, Value& to) {
    switch (op) {
#define TSM_OPERATOR(name, symbol) \
  case Operation::name:            \
    return each(to, [&](int i) { return a.v[i] symbol b.v[i]; });
#define TSM_FUNCTION(name) \
  case Operation::name:    \
    return each(to, [&](int i) { return Defined<M>::name(a.v[i]); });
      TSM_FOR_EACH_OPERATOR(TSM_OPERATOR)
      TSM_FOR_EACH_FUNCTION(TSM_FUNCTION)
#undef TSM_OPERATOR
#undef TSM_FUNCTION
    }
  }
};

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
