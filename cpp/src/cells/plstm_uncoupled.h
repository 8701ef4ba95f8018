// Generated from plugin/cells/plstm.py by `make cells`. Do not edit.
// clang-format off
//
// Power-law forget gate (Chien et al. 2021) with an input gate of its own.
//
// r = sigmoid(z_r);  a = (1 - r) (a' + dt);  f = (((1 - r)(a' + 1) + eps) / (a + 1))^p
// c = f c' + sigmoid(z_i) tanh(z_g);  h = sigmoid(z_o) tanh(c)
#pragma once
#include "cells/math.h"

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
  TSM_CELL static void forward(const V* z, const V* s, const V* q, const V* k, V dt, V* out) {
    const V z_r = z[0];
    const V z_i = z[1];
    const V z_o = z[2];
    const V z_g = z[3];
    const V s_c = s[1];
    const V s_age = s[2];
    const V p = q[0];
    const V eps = k[0];
    const V keep = M::sigmoid(-z_r);
    const V age = keep * (s_age + dt);
    const V c = M::fma(M::exp(p * M::log(M::fma(keep, s_age + V(1), eps) / (age + V(1)))), s_c, M::sigmoid(z_i) * M::tanh(z_g));
    out[0] = M::sigmoid(z_o) * M::tanh(c);
    out[1] = c;
    out[2] = age;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* z, const V* s, const V* q, const V* k, V dt, const V* d, V* dz, V* ds, V* dq) {
    const V z_r = z[0];
    const V z_i = z[1];
    const V z_o = z[2];
    const V z_g = z[3];
    const V s_c = s[1];
    const V s_age = s[2];
    const V p = q[0];
    const V eps = k[0];
    const V d_h = d[0];
    const V d_c = d[1];
    const V d_age = d[2];
    const V keep = M::sigmoid(-z_r);
    const V t1 = s_age + dt;
    const V t2 = s_age + V(1);
    const V t3 = M::fma(keep, t2, eps);
    const V t4 = t3 / M::fma(keep, t1, V(1));
    const V t5 = M::log(t4);
    const V f = M::exp(p * t5);
    const V i = M::sigmoid(z_i);
    const V t8 = M::tanh(z_g);
    const V t9 = M::sigmoid(z_o);
    const V t10 = M::tanh(M::fma(f, s_c, i * t8));
    const V t11 = M::fma(d_h * t9, M::fma(-t10, t10, V(1)), d_c);
    const V t12 = t11 * s_c * f;
    const V t13 = t12 * p / t3;
    const V t14 = M::fma(-t13, t4, d_age);
    dz[0] = -(M::fma(t13, t2, t14 * t1) * (keep * (V(1) - keep)));
    dz[1] = t11 * t8 * (i * (V(1) - i));
    dz[2] = d_h * t10 * (t9 * (V(1) - t9));
    dz[3] = t11 * i * M::fma(-t8, t8, V(1));
    ds[0] = V(0);
    ds[1] = t11 * f;
    ds[2] = M::fma(t13, keep, t14 * keep);
    dq[0] = t12 * t5;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* dq, V* dv) {
    const V d_p = dq[0];
    dv[0] = d_p;
  }
};

}  // namespace tsm::cells
