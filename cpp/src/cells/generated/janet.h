// Generated from plugin/cells/janet.py by `make cells`. Do not edit.
// clang-format off
//
// JANET (van der Westhuizen & Lasenby 2018): one state, |h| < e^beta.
//
// h = sigmoid(z_f) h' + (1 - sigmoid(z_f - beta)) tanh(z_g)
#pragma once
#include "cells/generated/primitives.h"

namespace tsm::cells {

struct janet {
  static constexpr const char* kName = "janet";
  static constexpr int kGates = 2;      // f g
  static constexpr int kStates = 1;     // h
  static constexpr int kVectors = 0;    // -
  static constexpr int kPrepared = 0;   // -
  static constexpr int kConstants = 1;  // beta
  static constexpr bool kTakesDt = false;
  static constexpr unsigned long long kProgramHash = 0x8bdc5fd64a917bdb;
  static constexpr unsigned kReads = 0x1;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* /*v*/, const V* /*k*/, V* /*q*/) {}
  template <class M, class V = typename M::V>
  TSM_CELL static void activate(const V* z, V* a) {
    const V z_f = z[0];
    const V z_g = z[1];
    a[0] = z_f;
    a[1] = M::tanh(z_g);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* a, const V* s, const V* /*q*/, const V* k, V /*dt*/, V* out) {
    const V a_f = a[0];
    const V a_g = a[1];
    const V s_h = s[0];
    const V beta = k[0];
    out[0] = M::fma(M::sigmoid(a_f), s_h, M::sigmoid(beta - a_f) * a_g);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* a, const V* s, const V* /*q*/, const V* k, V /*dt*/, const V* d, V* dz, V* ds, V* /*dq*/) {
    const V a_f = a[0];
    const V a_g = a[1];
    const V s_h = s[0];
    const V beta = k[0];
    const V d_h = d[0];
    const V t0 = M::sigmoid(a_f);
    const V t1 = M::sigmoid(beta - a_f);
    dz[0] = M::fma(-(d_h * a_g), t1 * (V(1) - t1), d_h * s_h * (t0 * (V(1) - t0)));
    dz[1] = d_h * t1 * M::fma(-a_g, a_g, V(1));
    ds[0] = d_h * t0;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* /*dq*/, V* /*dv*/) {}
};

}  // namespace tsm::cells
