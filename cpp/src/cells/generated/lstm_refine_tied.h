// Generated from plugin/cells/lstm_refine.py by `make cells`. Do not edit.
// clang-format off
//
// Refine gate (Gu et al. 2020), with a tied input gate, as in the language models of Ohno et al. 2022.
//
// f0, r = sigmoid(z);  f = r (1 - (1 - f0)^2) + (1 - r) f0^2;  i = 1 - f;  g, o, c, h as in the LSTM
#pragma once
#include "cells/generated/primitives.h"

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
  TSM_CELL static void activate(const V* z, V* a) {
    const V z_f = z[0];
    const V z_g = z[1];
    const V z_o = z[2];
    const V z_r = z[3];
    a[0] = z_f;
    a[1] = M::tanh(z_g);
    a[2] = M::sigmoid(z_o);
    a[3] = M::sigmoid(z_r);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* a, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, V* out) {
    const V a_f = a[0];
    const V a_g = a[1];
    const V a_o = a[2];
    const V a_r = a[3];
    const V s_c = s[1];
    const V f0 = M::sigmoid(a_f);
    const V f = M::fma(f0, f0, V(2) * a_r * (f0 * M::sigmoid(-a_f)));
    const V c = M::fma(f, s_c, (V(1) - f) * a_g);
    out[0] = a_o * M::tanh(c);
    out[1] = c;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* a, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, const V* d, V* dz, V* ds, V* /*dq*/) {
    const V a_f = a[0];
    const V a_g = a[1];
    const V a_o = a[2];
    const V a_r = a[3];
    const V s_c = s[1];
    const V d_h = d[0];
    const V d_c = d[1];
    const V f0 = M::sigmoid(a_f);
    const V t1 = V(2) * a_r;
    const V t2 = M::sigmoid(-a_f);
    const V t3 = f0 * t2;
    const V f = M::fma(f0, f0, t1 * t3);
    const V i = V(1) - f;
    const V t6 = M::tanh(M::fma(f, s_c, i * a_g));
    const V t7 = M::fma(d_h * a_o, M::fma(-t6, t6, V(1)), d_c);
    const V t8 = M::fma(-t7, a_g, t7 * s_c);
    const V t9 = t8 * t1;
    const V t10 = t8 * f0;
    dz[0] = M::fma(-(t9 * f0), t2 * (V(1) - t2), (M::fma(t9, t2, t10) + t10) * (f0 * (V(1) - f0)));
    dz[1] = t7 * i * M::fma(-a_g, a_g, V(1));
    dz[2] = d_h * t6 * (a_o * (V(1) - a_o));
    dz[3] = t8 * t3 * V(2) * (a_r * (V(1) - a_r));
    ds[0] = V(0);
    ds[1] = t7 * f;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* /*dq*/, V* /*dv*/) {}
};

}  // namespace tsm::cells
