// Generated from plugin/cells/gru.py by `make cells`. Do not edit.
// clang-format off
//
// GRU (Cho et al. 2014) as in PyTorch: r scales only U h' + b, so the candidate has two blocks, nx and nh.
//
// r, u = sigmoid(z);  n = tanh(z_nx + r z_nh), z_nx = W x + b, z_nh = U h' + b;  h = u h' + (1 - u) n
#pragma once
#include "cells/generated/primitives.h"

namespace tsm::cells {

struct gru {
  static constexpr const char* kName = "gru";
  static constexpr int kGates = 4;      // r u nx nh
  static constexpr int kStates = 1;     // h
  static constexpr int kVectors = 0;    // -
  static constexpr int kPrepared = 0;   // -
  static constexpr int kConstants = 0;  // -
  static constexpr bool kTakesDt = false;
  static constexpr unsigned long long kProgramHash = 0xac61b07e5b1a9425;
  static constexpr unsigned kReads = 0x1;  // bit i: the step reads the previous state i

  template <class M, class V = typename M::V>
  TSM_CELL static void prepare(const V* /*v*/, const V* /*k*/, V* /*q*/) {}
  template <class M, class V = typename M::V>
  TSM_CELL static void activate(const V* z, V* a) {
    const V z_r = z[0];
    const V z_u = z[1];
    const V z_nx = z[2];
    const V z_nh = z[3];
    a[0] = M::sigmoid(z_r);
    a[1] = M::sigmoid(z_u);
    a[2] = z_nx;
    a[3] = z_nh;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void forward(const V* a, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, V* out) {
    const V a_r = a[0];
    const V a_u = a[1];
    const V a_nx = a[2];
    const V a_nh = a[3];
    const V s_h = s[0];
    const V n = M::tanh(M::fma(a_r, a_nh, a_nx));
    out[0] = M::fma(a_u, s_h - n, n);
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void backward(const V* a, const V* s, const V* /*q*/, const V* /*k*/, V /*dt*/, const V* d, V* dz, V* ds, V* /*dq*/) {
    const V a_r = a[0];
    const V a_u = a[1];
    const V a_nx = a[2];
    const V a_nh = a[3];
    const V s_h = s[0];
    const V d_h = d[0];
    const V n = M::tanh(M::fma(a_r, a_nh, a_nx));
    const V t1 = d_h * a_u;
    const V t2 = (d_h - t1) * M::fma(-n, n, V(1));
    dz[0] = t2 * a_nh * (a_r * (V(1) - a_r));
    dz[1] = d_h * (s_h - n) * (a_u * (V(1) - a_u));
    dz[2] = t2;
    dz[3] = t2 * a_r;
    ds[0] = t1;
  }
  template <class M, class V = typename M::V>
  TSM_CELL static void prepare_backward(const V* /*v*/, const V* /*k*/, const V* /*dq*/, V* /*dv*/) {}
};

}  // namespace tsm::cells
