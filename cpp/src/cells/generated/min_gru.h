// Generated from plugin/cells/min_gru.py by `make cells`. Do not edit.
// clang-format off
//
// minGRU (Feng et al. 2024), without tanh and without U, as in the paper. Its update gate z is 1 - u here.
//
// u = sigmoid(z_u), z = W x + b;  h = u h' + (1 - u) z_g
#pragma once
#include "cells/generated/primitives.h"

namespace tsm::cells {

struct min_gru {
  static constexpr const char* kName = "min_gru";
  static constexpr int kGates = 2;      // u g
  static constexpr int kStates = 1;     // h
  static constexpr int kVectors = 0;    // -
  static constexpr int kPrepared = 0;   // -
  static constexpr int kConstants = 0;  // -
  static constexpr bool kTakesDt = false;
  static constexpr unsigned long long kProgramHash = 0xa72a9a8b15a51935;
  static constexpr unsigned kReads = 0x1;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* /*v*/, const V* /*k*/, V* /*q*/) {}
  template <class M, class V = typename M::V>
  TSM_CELL static void activate(const V* z, V* a) {
    const V z_u = z[0];
    const V z_g = z[1];
    a[0] = M::sigmoid(z_u);
    a[1] = z_g;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* a, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, V* out) {
    const V a_u = a[0];
    const V a_g = a[1];
    const V s_h = s[0];
    out[0] = M::fma(a_u, s_h - a_g, a_g);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* a, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, const V* d, V* dz, V* ds, V* /*dq*/) {
    const V a_u = a[0];
    const V a_g = a[1];
    const V s_h = s[0];
    const V d_h = d[0];
    const V t0 = d_h * a_u;
    dz[0] = d_h * (s_h - a_g) * (a_u * (V(1) - a_u));
    dz[1] = d_h - t0;
    ds[0] = t0;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* /*dq*/, V* /*dv*/) {}
};

}  // namespace tsm::cells
