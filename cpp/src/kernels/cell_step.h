// One step of one row of a generated cell, a register of units at a time.
#pragma once
#include "cells/all.h"
#include "cells/simd.h"
#include "kernels/level.h"

namespace tsm {
inline namespace TSM_LEVEL {
namespace {

template <class Cell, class M, class F>
struct CellRow {
  using V = typename M::V;
  static constexpr int G = Cell::kGates, S = Cell::kStates, K = Cell::kVectors;
  static constexpr int Q = Cell::kPrepared, C = Cell::kConstants;
  // Sizes of arrays; C++ has none of size 0.
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
    V k[kC] = {};
    for (int i = 0; i < C; ++i) k[i] = V(a.constants[i]);
    const V dt(a.dt);
    int64_t j = 0;
    for (; j + M::kLanes <= a.H; j += M::kLanes) units(a, k, dt, j, M::kLanes);
    if (j < a.H) units(a, k, dt, j, int(a.H - j));
  }

  static constexpr CellForward<F> table() {
    return {Cell::kName,       G, S, K, Q, C, Cell::kReads, Cell::kTakesDt, prepare, forward,
            Cell::kProgramHash};
  }

 private:
  TSM_CELL static void units(const CellStep<F>& a, const V* k, V dt, int64_t j, int n) {
    V z[G], s[S], q[kQ] = {}, out[S];
    for (int i = 0; i < G; ++i) z[i] = M::load(a.z + i * a.H + j, n);
    for (int i = 0; i < S; ++i) s[i] = M::load(a.state[i] + j, n);
    for (int i = 0; i < Q; ++i) q[i] = M::load(a.prepared + i * a.H + j, n);
    Cell::template forward<M>(z, s, q, k, dt, out);
    for (int i = 0; i < S; ++i) M::store(out[i], a.state[i] + j, n);
  }
};

}  // namespace
}  // namespace TSM_LEVEL
}  // namespace tsm
