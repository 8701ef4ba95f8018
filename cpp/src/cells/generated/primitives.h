// Generated from plugin/cells/tape by `make cells`. Do not edit.
// clang-format off
#pragma once
#include <cstdint>

#include "cells/math.h"

namespace tsm {

constexpr int kMostNames = 32;    // gates, states, vectors or constants of a cell
constexpr int kMostValues = 256;  // inputs, literals and nodes of a program

// What a program may consist of: operators of two numbers, functions of one.
enum class Operation : int32_t { add, sub, mul, div, neg, exp, log, sigmoid, tanh, fast_sigmoid, softsign_gate, log_sigmoid };
constexpr int kOperations = 12;
constexpr const char* kOperationNames[kOperations] = {"add", "sub", "mul", "div", "neg", "exp", "log", "sigmoid", "tanh", "fast_sigmoid", "softsign_gate", "log_sigmoid"};
constexpr bool takes_two(Operation op) { return int(op) < 4; }
#define TSM_FOR_EACH_OPERATOR(X) X(add, +) X(sub, -) X(mul, *) X(div, /)
#define TSM_FOR_EACH_FUNCTION(X) X(neg) X(exp) X(log) X(sigmoid) X(tanh) X(fast_sigmoid) X(softsign_gate) X(log_sigmoid)
#define TSM_FOR_EACH_SLOPE(X) X(fast_sigmoid_slope) X(softsign_gate_slope)  // only derivatives call them

// A math policy, with the primitives that are formulas over its functions.
template <class M>
struct Defined : M {
  using V = typename M::V;
  TSM_CELL static V neg(V x) { return -x; }
  TSM_CELL static V fast_sigmoid(V x) {
    return M::sigmoid(M::sinh(M::clip(x, V(-7.5), V(7.5))));
  }
  TSM_CELL static V fast_sigmoid_slope(V x) {
    const V within = M::clip(x, V(-7.5), V(7.5));
    const V e = M::exp(-M::abs(M::sinh(within)));
    const V t2 = V(1) + e;
    return e / (t2 * t2) * M::cosh(within);
  }
  TSM_CELL static V softsign_gate(V x) {
    return M::fma(V(0.5), x / (V(2) + M::abs(x)), V(0.5));
  }
  TSM_CELL static V softsign_gate_slope(V x) {
    const V t0 = V(2) + M::abs(x);
    return V(1) / (t0 * t0);
  }
  TSM_CELL static V log_sigmoid(V x) {
    const V size = M::abs(x);
    return M::fma(V(0.5), x - size, -M::log(V(1) + M::exp(-size)));
  }
};

}  // namespace tsm
