// Generated from plugin/cells/lstm_softsign.py by `make cells`. Do not edit.
// clang-format off
//
// Normalized softsign gate (Ohno et al. 2022), the slow baseline for the fast gate.
//
// f = (softsign(z_f / 2) + 1) / 2;  i, g, o, c, h as in the LSTM
#pragma once
#include "cells/generated/primitives.h"

namespace tsm::cells {

struct lstm_softsign {
  static constexpr const char* kName = "lstm_softsign";
  static constexpr int kGates = 4;      // i f g o
  static constexpr int kStates = 2;     // h c
  static constexpr int kVectors = 0;    // -
  static constexpr int kPrepared = 0;   // -
  static constexpr int kConstants = 0;  // -
  static constexpr bool kTakesDt = false;
  static constexpr unsigned long long kProgramHash = 0xf2b6922e978c811b;
  static constexpr unsigned kReads = 0x2;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* /*v*/, const V* /*k*/, V* /*q*/) {}
  template <class M, class V = typename M::V>
  TSM_CELL static void activate(const V* z, V* a) {
    const V z_i = z[0];
    const V z_f = z[1];
    const V z_g = z[2];
    const V z_o = z[3];
    a[0] = M::sigmoid(z_i);
    a[1] = z_f;
    a[2] = M::tanh(z_g);
    a[3] = M::sigmoid(z_o);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* a, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, V* out) {
    const V a_i = a[0];
    const V a_f = a[1];
    const V a_g = a[2];
    const V a_o = a[3];
    const V s_c = s[1];
    const V c = M::fma(Defined<M>::softsign_gate(a_f), s_c, a_i * a_g);
    out[0] = a_o * M::tanh(c);
    out[1] = c;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* a, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, const V* d, V* dz, V* ds, V* /*dq*/) {
    const V a_i = a[0];
    const V a_f = a[1];
    const V a_g = a[2];
    const V a_o = a[3];
    const V s_c = s[1];
    const V d_h = d[0];
    const V d_c = d[1];
    const V f = Defined<M>::softsign_gate(a_f);
    const V t1 = M::tanh(M::fma(f, s_c, a_i * a_g));
    const V t2 = M::fma(d_h * a_o, M::fma(-t1, t1, V(1)), d_c);
    dz[0] = t2 * a_g * (a_i * (V(1) - a_i));
    dz[1] = t2 * s_c * Defined<M>::softsign_gate_slope(a_f);
    dz[2] = t2 * a_i * M::fma(-a_g, a_g, V(1));
    dz[3] = d_h * t1 * (a_o * (V(1) - a_o));
    ds[0] = V(0);
    ds[1] = t2 * f;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* /*dq*/, V* /*dv*/) {}
};

}  // namespace tsm::cells
