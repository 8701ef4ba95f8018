// Generated from plugin/cells/plstm.py by `make cells`. Do not edit.
// clang-format off
//
// Power-law forget gate (Chien et al. 2021) whose reset gate saturates fast (Ohno et al. 2022).
//
// r = sigmoid(sinh(z_r));  a = (1 - r) (a' + dt);  f = (((1 - r)(a' + 1) + eps) / (a + 1))^p
// c = f c' + (1 - f) tanh(z_g);  h = sigmoid(z_o) tanh(c)
#pragma once
#include "cells/generated/primitives.h"

namespace tsm::cells {

struct plstm_fast {
  static constexpr const char* kName = "plstm_fast";
  static constexpr int kGates = 3;      // r o g
  static constexpr int kStates = 3;     // h c age
  static constexpr int kVectors = 1;    // p
  static constexpr int kPrepared = 1;   // p
  static constexpr int kConstants = 1;  // eps
  static constexpr bool kTakesDt = true;
  static constexpr unsigned long long kProgramHash = 0x7fd5a79d4c9cccc9;
  static constexpr unsigned kReads = 0x6;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* v, const V* /*k*/, V* q) {
    const V v_p = v[0];
    q[0] = v_p;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void activate(const V* z, V* a) {
    const V z_r = z[0];
    const V z_o = z[1];
    const V z_g = z[2];
    a[0] = -z_r;
    a[1] = M::sigmoid(z_o);
    a[2] = M::tanh(z_g);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* a, const V* s, const V* q, const V* k, V dt, V* out) {
    const V a_r = a[0];
    const V a_o = a[1];
    const V a_g = a[2];
    const V s_c = s[1];
    const V s_age = s[2];
    const V p = q[0];
    const V eps = k[0];
    const V keep = Defined<M>::fast_sigmoid(a_r);
    const V age = keep * (s_age + dt);
    const V f = M::exp(p * M::log(M::fma(keep, s_age + V(1), eps) / (age + V(1))));
    const V c = M::fma(f, s_c, (V(1) - f) * a_g);
    out[0] = a_o * M::tanh(c);
    out[1] = c;
    out[2] = age;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* a, const V* s, const V* q, const V* k, V dt, const V* d, V* dz, V* ds, V* dq) {
    const V a_r = a[0];
    const V a_o = a[1];
    const V a_g = a[2];
    const V s_c = s[1];
    const V s_age = s[2];
    const V p = q[0];
    const V eps = k[0];
    const V d_h = d[0];
    const V d_c = d[1];
    const V d_age = d[2];
    const V keep = Defined<M>::fast_sigmoid(a_r);
    const V t1 = s_age + dt;
    const V t2 = s_age + V(1);
    const V t3 = M::fma(keep, t2, eps);
    const V t4 = t3 / M::fma(keep, t1, V(1));
    const V t5 = M::log(t4);
    const V f = M::exp(p * t5);
    const V i = V(1) - f;
    const V t8 = M::tanh(M::fma(f, s_c, i * a_g));
    const V t9 = M::fma(d_h * a_o, M::fma(-t8, t8, V(1)), d_c);
    const V t10 = M::fma(-t9, a_g, t9 * s_c) * f;
    const V t11 = t10 * p / t3;
    const V t12 = M::fma(-t11, t4, d_age);
    dz[0] = -(M::fma(t11, t2, t12 * t1) * Defined<M>::fast_sigmoid_slope(a_r));
    dz[1] = d_h * t8 * (a_o * (V(1) - a_o));
    dz[2] = t9 * i * M::fma(-a_g, a_g, V(1));
    ds[0] = V(0);
    ds[1] = t9 * f;
    ds[2] = M::fma(t11, keep, t12 * keep);
    dq[0] = t10 * t5;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* dq, V* dv) {
    const V d_p = dq[0];
    dv[0] = d_p;
  }
};

}  // namespace tsm::cells
