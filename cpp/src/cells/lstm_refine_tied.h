// Generated from plugin/cells/lstm_refine.py by `make cells`. Do not edit.
// clang-format off
//
// Refine gate (Gu et al. 2020), input gate tied: the form of Ohno et al. 2022 in language models.
//
// f0, r = sigmoid(z);  f = r (1 - (1 - f0)^2) + (1 - r) f0^2;  i = 1 - f;  g, o, c, h as in the LSTM
#pragma once
#include "cells/math.h"

namespace tsm::cells {

struct lstm_refine_tied {
  static constexpr const char* kName = "lstm_refine_tied";
  static constexpr int kGates = 4;      // f g o r
  static constexpr int kStates = 2;     // h c
  static constexpr int kVectors = 0;    // -
  static constexpr int kPrepared = 0;   // -
  static constexpr int kConstants = 0;  // -
  static constexpr bool kTakesDt = false;
  static constexpr unsigned long long kProgramHash = 0x225520a777d20efa;
  static constexpr unsigned kReads = 0x2;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* /*v*/, const V* /*k*/, V* /*q*/) {}
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* z, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, V* out) {
    const V z_f = z[0];
    const V z_g = z[1];
    const V z_o = z[2];
    const V z_r = z[3];
    const V s_c = s[1];
    const V f0 = M::sigmoid(z_f);
    const V f = M::fma(f0, f0, V(2) * M::sigmoid(z_r) * (f0 * M::sigmoid(-z_f)));
    const V c = M::fma(f, s_c, (V(1) - f) * M::tanh(z_g));
    out[0] = M::sigmoid(z_o) * M::tanh(c);
    out[1] = c;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* z, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, const V* d, V* dz, V* ds, V* /*dq*/) {
    const V z_f = z[0];
    const V z_g = z[1];
    const V z_o = z[2];
    const V z_r = z[3];
    const V s_c = s[1];
    const V d_h = d[0];
    const V d_c = d[1];
    const V f0 = M::sigmoid(z_f);
    const V t1 = M::sigmoid(z_r);
    const V t2 = V(2) * t1;
    const V t3 = M::sigmoid(-z_f);
    const V t4 = f0 * t3;
    const V f = M::fma(f0, f0, t2 * t4);
    const V i = V(1) - f;
    const V t7 = M::tanh(z_g);
    const V t8 = M::sigmoid(z_o);
    const V t9 = M::tanh(M::fma(f, s_c, i * t7));
    const V t10 = M::fma(d_h * t8, M::fma(-t9, t9, V(1)), d_c);
    const V t11 = M::fma(-t10, t7, t10 * s_c);
    const V t12 = t11 * t2;
    const V t13 = t11 * f0;
    dz[0] = M::fma(-(t12 * f0), t3 * (V(1) - t3), (M::fma(t12, t3, t13) + t13) * (f0 * (V(1) - f0)));
    dz[1] = t10 * i * M::fma(-t7, t7, V(1));
    dz[2] = d_h * t9 * (t8 * (V(1) - t8));
    dz[3] = t11 * t4 * V(2) * (t1 * (V(1) - t1));
    ds[0] = V(0);
    ds[1] = t10 * f;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* /*dq*/, V* /*dv*/) {}
};

}  // namespace tsm::cells
