// Generated from plugin/cells/plstm.py by `make cells`. Do not edit.
// clang-format off
//
// Power-law forget gate (Chien et al. 2021) with an input gate of its own.
//
// r = sigmoid(z_r);  a = (1 - r) (a' + dt);  f = (((1 - r)(a' + 1) + eps) / (a + 1))^p
// c = f c' + sigmoid(z_i) tanh(z_g);  h = sigmoid(z_o) tanh(c)
#pragma once
#include "cells/generated/primitives.h"

namespace tsm::cells {

struct plstm_uncoupled {
  static constexpr const char* kName = "plstm_uncoupled";
  static constexpr int kGates = 4;      // r i o g
  static constexpr int kStates = 3;     // h c age
  static constexpr int kVectors = 1;    // p
  static constexpr int kPrepared = 1;   // p
  static constexpr int kConstants = 1;  // eps
  static constexpr bool kTakesDt = true;
  static constexpr unsigned long long kProgramHash = 0x0ecf42f620f30f28;
  static constexpr unsigned kReads = 0x6;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* v, const V* /*k*/, V* q) {
    const V v_p = v[0];
    q[0] = v_p;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void activate(const V* z, V* a) {
    const V z_r = z[0];
    const V z_i = z[1];
    const V z_o = z[2];
    const V z_g = z[3];
    a[0] = M::sigmoid(-z_r);
    a[1] = M::sigmoid(z_i);
    a[2] = M::sigmoid(z_o);
    a[3] = M::tanh(z_g);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* a, const V* s, const V* q, const V* k, V dt, V* out) {
    const V a_r = a[0];
    const V a_i = a[1];
    const V a_o = a[2];
    const V a_g = a[3];
    const V s_c = s[1];
    const V s_age = s[2];
    const V p = q[0];
    const V eps = k[0];
    const V age = a_r * (s_age + dt);
    const V c = M::fma(M::exp(p * M::log(M::fma(a_r, s_age + V(1), eps) / (age + V(1)))), s_c, a_i * a_g);
    out[0] = a_o * M::tanh(c);
    out[1] = c;
    out[2] = age;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* a, const V* s, const V* q, const V* k, V dt, const V* d, V* dz, V* ds, V* dq) {
    const V a_r = a[0];
    const V a_i = a[1];
    const V a_o = a[2];
    const V a_g = a[3];
    const V s_c = s[1];
    const V s_age = s[2];
    const V p = q[0];
    const V eps = k[0];
    const V d_h = d[0];
    const V d_c = d[1];
    const V d_age = d[2];
    const V t0 = s_age + dt;
    const V t1 = s_age + V(1);
    const V t2 = M::fma(a_r, t1, eps);
    const V t3 = t2 / M::fma(a_r, t0, V(1));
    const V t4 = M::log(t3);
    const V f = M::exp(p * t4);
    const V t6 = M::tanh(M::fma(f, s_c, a_i * a_g));
    const V t7 = M::fma(d_h * a_o, M::fma(-t6, t6, V(1)), d_c);
    const V t8 = t7 * s_c * f;
    const V t9 = t8 * p / t2;
    const V t10 = M::fma(-t9, t3, d_age);
    dz[0] = -(M::fma(t9, t1, t10 * t0) * (a_r * (V(1) - a_r)));
    dz[1] = t7 * a_g * (a_i * (V(1) - a_i));
    dz[2] = d_h * t6 * (a_o * (V(1) - a_o));
    dz[3] = t7 * a_i * M::fma(-a_g, a_g, V(1));
    ds[0] = V(0);
    ds[1] = t7 * f;
    ds[2] = M::fma(t9, a_r, t10 * a_r);
    dq[0] = t8 * t4;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* dq, V* dv) {
    const V d_p = dq[0];
    dv[0] = d_p;
  }
};

}  // namespace tsm::cells
