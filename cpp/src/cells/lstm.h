// Generated from plugin/cells/lstm.py by `make cells`. Do not edit.
// clang-format off
//
// LSTM (Hochreiter & Schmidhuber 1997, Gers et al. 2000), gates in PyTorch's order.
//
// i, f, o = sigmoid(z);  g = tanh(z_g);  c = f c' + i g;  h = o tanh(c)
#pragma once
#include "cells/math.h"

namespace tsm::cells {

struct lstm {
  static constexpr const char* kName = "lstm";
  static constexpr int kGates = 4;      // i f g o
  static constexpr int kStates = 2;     // h c
  static constexpr int kVectors = 0;    // -
  static constexpr int kPrepared = 0;   // -
  static constexpr int kConstants = 0;  // -
  static constexpr bool kTakesDt = false;
  static constexpr unsigned long long kProgramHash = 0xe6d8c010b11412b4;
  static constexpr unsigned kReads = 0x2;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* /*v*/, const V* /*k*/, V* /*q*/) {}
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* z, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, V* out) {
    const V z_i = z[0];
    const V z_f = z[1];
    const V z_g = z[2];
    const V z_o = z[3];
    const V s_c = s[1];
    const V c = M::fma(M::sigmoid(z_f), s_c, M::sigmoid(z_i) * M::tanh(z_g));
    out[0] = M::sigmoid(z_o) * M::tanh(c);
    out[1] = c;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* z, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, const V* d, V* dz, V* ds, V* /*dq*/) {
    const V z_i = z[0];
    const V z_f = z[1];
    const V z_g = z[2];
    const V z_o = z[3];
    const V s_c = s[1];
    const V d_h = d[0];
    const V d_c = d[1];
    const V f = M::sigmoid(z_f);
    const V i = M::sigmoid(z_i);
    const V t2 = M::tanh(z_g);
    const V t3 = M::sigmoid(z_o);
    const V t4 = M::tanh(M::fma(f, s_c, i * t2));
    const V t5 = M::fma(d_h * t3, M::fma(-t4, t4, V(1)), d_c);
    dz[0] = t5 * t2 * (i * (V(1) - i));
    dz[1] = t5 * s_c * (f * (V(1) - f));
    dz[2] = t5 * i * M::fma(-t2, t2, V(1));
    dz[3] = d_h * t4 * (t3 * (V(1) - t3));
    ds[0] = V(0);
    ds[1] = t5 * f;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* /*dq*/, V* /*dv*/) {}
};

}  // namespace tsm::cells
