// One step of one row of a generated cell: several registers of units at a time, then single
// registers.
#pragma once
#include "cells/generated/all.h"
#include "cells/pair.h"
#include "kernels/cpu/isa.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

template <class Cell, class M, class F>
struct CellRow {
  using V = typename M::V;
  static constexpr int G = Cell::kGates, S = Cell::kStates, K = Cell::kVectors;
  static constexpr int Q = Cell::kPrepared, C = Cell::kConstants;
  static_assert(G <= kMostNames && S <= kMostNames && K <= kMostNames && C <= kMostNames);
  // Array sizes; C++ has no arrays of size 0.
  static constexpr int kQ = Q > 0 ? Q : 1, kK = K > 0 ? K : 1, kC = C > 0 ? C : 1;

  static void prepare(int64_t H, const F* vectors, const F* constants, F* prepared) {
    V k[kC] = {};
    for (int i = 0; i < C; ++i) k[i] = V(constants[i]);
    for (int64_t j = 0; j < H && Q > 0; j += M::kLanes) {
      const int n = H - j < M::kLanes ? int(H - j) : M::kLanes;
      V v[kK] = {}, q[kQ] = {};
      for (int i = 0; i < K; ++i) v[i] = M::load(vectors + i * H + j, n);
      Cell::template prepare<M>(v, k, q);
      for (int i = 0; i < Q; ++i) M::store(q[i], prepared + i * H + j, n);
    }
  }

  static void forward(const CellStep<F>& a) {
    using W = typename Wider<M>::Policy;
    int64_t j = 0;
    for (; j + W::kLanes <= a.H; j += W::kLanes) units<W>(a, j, W::kLanes);
    for (; j < a.H; j += M::kLanes) units<M>(a, j, a.H - j < M::kLanes ? int(a.H - j) : M::kLanes);
  }

  static constexpr CellForward<F> table() { return {CellInfo::of<Cell>(), prepare, forward}; }

 private:
  // n units from unit j on, with the policy P.
  template <class P>
  TSM_CELL static void units(const CellStep<F>& a, int64_t j, int n) {
    typename P::V z[G], s[S], q[kQ], k[kC], out[S];
    for (int i = 0; i < C; ++i) k[i] = typename P::V(a.constants[i]);
    for (int i = 0; i < G; ++i) z[i] = P::load(a.z + i * a.H + j, n);
    for (int i = 0; i < S; ++i) s[i] = P::load(a.state[i] + j, n);
    for (int i = 0; i < Q; ++i) q[i] = P::load(a.prepared + i * a.H + j, n);
    Cell::template activate<P>(z, z);
    Cell::template forward<P>(z, s, q, k, typename P::V(a.dt), out);
    for (int i = 0; i < S; ++i) P::store(out[i], a.state[i] + j, n);
  }
};

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
