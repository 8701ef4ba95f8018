// Generated from plugin/cells/slstm.py by `make cells`. Do not edit.
// clang-format off
//
// sLSTM of xLSTM (Beck et al. 2024, eq. 8-17), with a = c / n and l = log n as its states, n starting at 1.
//
// i = exp(z_i);  f, o = sigmoid(z);  g = tanh(z_g)
// n = f n' + i;  a = (f n' a' + i g) / n;  h = o a
// as: w = sigmoid(z_i - log f - l');  a = a' + w (g - a');  l = log(f e^l' + i)
#pragma once
#include "cells/generated/primitives.h"

namespace tsm::cells {

struct slstm {
  static constexpr const char* kName = "slstm";
  static constexpr int kGates = 4;      // i f g o
  static constexpr int kStates = 3;     // h a l
  static constexpr int kVectors = 0;    // -
  static constexpr int kPrepared = 0;   // -
  static constexpr int kConstants = 0;  // -
  static constexpr bool kTakesDt = false;
  static constexpr unsigned long long kProgramHash = 0xd8b3d4d85782ef0b;
  static constexpr unsigned kReads = 0x6;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* /*v*/, const V* /*k*/, V* /*q*/) {}
  template <class M, class V = typename M::V>
  TSM_CELL static void activate(const V* z, V* a) {
    const V z_i = z[0];
    const V z_f = z[1];
    const V z_g = z[2];
    const V z_o = z[3];
    a[0] = z_i;
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
    const V s_a = s[1];
    const V s_l = s[2];
    const V kept = Defined<M>::log_sigmoid(a_f) + s_l;
    const V excess = a_i - kept;
    const V a_new = M::fma(M::sigmoid(excess), a_g - s_a, s_a);
    out[0] = a_o * a_new;
    out[1] = a_new;
    out[2] = kept - Defined<M>::log_sigmoid(-excess);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* a, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, const V* d, V* dz, V* ds, V* /*dq*/) {
    const V a_i = a[0];
    const V a_f = a[1];
    const V a_g = a[2];
    const V a_o = a[3];
    const V s_a = s[1];
    const V s_l = s[2];
    const V d_h = d[0];
    const V d_a = d[1];
    const V d_l = d[2];
    const V t0 = M::sigmoid(a_i - (Defined<M>::log_sigmoid(a_f) + s_l));
    const V t1 = a_g - s_a;
    const V t2 = M::fma(d_h, a_o, d_a);
    const V t3 = t2 * t0;
    const V t4 = M::fma(-(-d_l), t0, t2 * t1 * (t0 * (V(1) - t0)));
    const V t5 = d_l - t4;
    dz[0] = t4;
    dz[1] = t5 * M::sigmoid(-a_f);
    dz[2] = t3 * M::fma(-a_g, a_g, V(1));
    dz[3] = d_h * M::fma(t0, t1, s_a) * (a_o * (V(1) - a_o));
    ds[0] = V(0);
    ds[1] = t2 - t3;
    ds[2] = t5;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* /*dq*/, V* /*dv*/) {}
};

}  // namespace tsm::cells
