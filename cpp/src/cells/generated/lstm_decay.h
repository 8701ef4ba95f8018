// Generated from plugin/cells/lstm_decay.py by `make cells`. Do not edit.
// clang-format off
//
// Memory that decays between steps (after Mei & Eisner 2017; here to 0, with a time constant per unit).
//
// f = sigmoid(z_f) exp(-dt / tau);  i, g, o, c, h as in the LSTM
#pragma once
#include "cells/generated/primitives.h"

namespace tsm::cells {

struct lstm_decay {
  static constexpr const char* kName = "lstm_decay";
  static constexpr int kGates = 4;      // i f g o
  static constexpr int kStates = 2;     // h c
  static constexpr int kVectors = 1;    // tau
  static constexpr int kPrepared = 1;   // rate
  static constexpr int kConstants = 0;  // -
  static constexpr bool kTakesDt = true;
  static constexpr unsigned long long kProgramHash = 0x4a7fd4351276cb7c;
  static constexpr unsigned kReads = 0x2;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* v, const V* /*k*/, V* q) {
    const V v_tau = v[0];
    q[0] = V(1) / v_tau;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void activate(const V* z, V* a) {
    const V z_i = z[0];
    const V z_f = z[1];
    const V z_g = z[2];
    const V z_o = z[3];
    a[0] = M::sigmoid(z_i);
    a[1] = M::sigmoid(z_f);
    a[2] = M::tanh(z_g);
    a[3] = M::sigmoid(z_o);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* a, const V* s, const V* q, const V* /*k*/, V dt, V* out) {
    const V a_i = a[0];
    const V a_f = a[1];
    const V a_g = a[2];
    const V a_o = a[3];
    const V s_c = s[1];
    const V rate = q[0];
    const V c = M::fma(a_f * M::exp(-dt * rate), s_c, a_i * a_g);
    out[0] = a_o * M::tanh(c);
    out[1] = c;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* a, const V* s, const V* q, const V* /*k*/, V dt, const V* d, V* dz, V* ds, V* dq) {
    const V a_i = a[0];
    const V a_f = a[1];
    const V a_g = a[2];
    const V a_o = a[3];
    const V s_c = s[1];
    const V rate = q[0];
    const V d_h = d[0];
    const V d_c = d[1];
    const V t0 = -dt;
    const V t1 = M::exp(t0 * rate);
    const V f = a_f * t1;
    const V t3 = M::tanh(M::fma(f, s_c, a_i * a_g));
    const V t4 = M::fma(d_h * a_o, M::fma(-t3, t3, V(1)), d_c);
    const V t5 = t4 * s_c;
    dz[0] = t4 * a_g * (a_i * (V(1) - a_i));
    dz[1] = t5 * t1 * (a_f * (V(1) - a_f));
    dz[2] = t4 * a_i * M::fma(-a_g, a_g, V(1));
    dz[3] = d_h * t3 * (a_o * (V(1) - a_o));
    ds[0] = V(0);
    ds[1] = t4 * f;
    dq[0] = t5 * a_f * t1 * t0;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* v, const V* /*k*/, const V* dq, V* dv) {
    const V v_tau = v[0];
    const V d_rate = dq[0];
    dv[0] = -(d_rate / v_tau * (V(1) / v_tau));
  }
};

}  // namespace tsm::cells
