// One step of one row of a generated cell, for training: forward, which keeps what backward needs,
// and backward. Included by units that are compiled once per instruction set: no STL.
#pragma once
#include "cells/pair.h"
#include "cells/simd.h"
#include "kernels/cpu/train/isa_training.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

// Sums in double, one per lane of a register of M.
template <class M>
struct DoubleSums;

template <>
struct DoubleSums<SimdFloat> {
  static constexpr int L = SimdFloat::kLanes;
  typedef float Half __attribute__((vector_size(2 * L)));
  typedef double Doubles __attribute__((vector_size(4 * L)));
  Doubles v[2];

  TSM_CELL void load(const double* from, int count) {
    if (count != L) v[0] = v[1] = Doubles{};
    std::memcpy(v, from, sizeof(double) * size_t(count == L ? L : count));
  }
  TSM_CELL void add(SimdFloat::V x) {
    Half halves[2];
    std::memcpy(halves, &x, sizeof(halves));
    for (int i = 0; i < 2; ++i) v[i] += __builtin_convertvector(halves[i], Doubles);
  }
  TSM_CELL void store(double* to, int count) const {
    std::memcpy(to, v, sizeof(double) * size_t(count == L ? L : count));
  }
};

template <class M>
struct DoubleSums<Pair<M>> {
  static constexpr int L = M::kLanes;
  DoubleSums<M> a, b;
  TSM_CELL void load(const double* from, int) {
    a.load(from, L);
    b.load(from + L, L);
  }
  TSM_CELL void add(typename Pair<M>::V x) {
    a.add(x.a);
    b.add(x.b);
  }
  TSM_CELL void store(double* to, int) const {
    a.store(to, L);
    b.store(to + L, L);
  }
};

template <>
struct DoubleSums<Scalar<double>> {
  double v;
  TSM_CELL void load(const double* from, int) { v = *from; }
  TSM_CELL void add(double x) { v += x; }
  TSM_CELL void store(double* to, int) const { *to = v; }
};

// Processes units [0, H) of a row with `Units`, a template over the policy: several registers at a
// time with the policy W, the rest in single registers. H must be a multiple of the register width.
template <template <class> class Units, class M, class W, class Arguments>
void sweep_registers(int64_t H, const Arguments& arguments) {
  int64_t j = 0;
  for (; j + W::kLanes <= H; j += W::kLanes) {
    const Units<W> units(arguments, j, W::kLanes);
    units.store(arguments, j, W::kLanes);
  }
  for (; j < H; j += M::kLanes) {
    const Units<M> units(arguments, j, M::kLanes);
    units.store(arguments, j, M::kLanes);
  }
}

// The same for any H. If H is not a multiple of the register width, the last register overlaps its
// neighbour. It is loaded before anything is stored, and stored last, so both write the same bits
// to the overlap and no slow partial load is needed.
template <template <class> class Units, class M, class W, class Arguments>
void sweep(int64_t H, const Arguments& arguments) {
  constexpr int L = M::kLanes;
  const int64_t whole = H / L * L;
  if (whole == H) return sweep_registers<Units, M, W>(H, arguments);
  const int64_t at = H < L ? 0 : H - L;
  const Units<M> end(arguments, at, int(H - at));
  sweep_registers<Units, M, W>(whole, arguments);
  end.store(arguments, at, int(H - at));
}

template <class Cell, class M, class F>
struct CellTrainer {
  using V = typename M::V;
  static constexpr int G = Cell::kGates, S = Cell::kStates, K = Cell::kVectors;
  static constexpr int Q = Cell::kPrepared, C = Cell::kConstants;
  // Sizes of per-unit arrays; C++ has no arrays of size 0.
  static constexpr int kQ = Q > 0 ? Q : 1, kK = K > 0 ? K : 1, kC = C > 0 ? C : 1;
  static constexpr bool reads(int state) { return (Cell::kReads >> state) & 1u; }

  template <class P>
  struct Constants {
    using V = typename P::V;
    V value[kC];
    TSM_CELL explicit Constants(const F* from) {
      for (int i = 0; i < C; ++i) value[i] = V(from[i]);
    }
  };

  // Registers with the inputs of forward and backward.
  template <class P>
  struct Inputs {
    typename P::V gates[G], q[kQ];
    TSM_CELL Inputs(const TrainingRow<F>& row, int64_t j, int n) {
      for (int i = 0; i < G; ++i) gates[i] = P::load(row.gates + i * row.H + j, n);
      for (int i = 0; i < Q; ++i) q[i] = P::load(row.prepared + i * row.H + j, n);
    }
  };

  template <class P>
  struct ForwardUnits {
    using V = typename P::V;
    V active[G], before[S], after[S];
    TSM_CELL ForwardUnits(const TrainingForward<F>& a, int64_t j, int n) {
      const Inputs<P> in(a.row, j, n);
      const Constants<P> k(a.row.constants);
      for (int i = 0; i < S; ++i) before[i] = reads(i) ? P::load(a.state[i] + j, n) : V(F(0));
      Cell::template activate<P>(in.gates, active);
      Cell::template forward<P>(active, before, in.q, k.value, V(a.row.dt), after);
    }
    TSM_CELL void store(const TrainingForward<F>& a, int64_t j, int n) const {
      for (int i = 0; i < G && a.active; ++i) P::store(active[i], a.active + i * a.row.H + j, n);
      for (int i = 0; i < S; ++i) {
        if (reads(i) && a.before[i]) P::store(before[i], a.before[i] + j, n);
        P::store(after[i], a.state[i] + j, n);
      }
      if (a.y) P::store(after[0], a.y + j, n);
    }
  };

  template <class P>
  struct BackwardUnits {
    using V = typename P::V;
    V dz[G], ds[S];
    DoubleSums<P> sums[kQ];
    TSM_CELL BackwardUnits(const TrainingBackward<F>& a, int64_t j, int n) {
      const Inputs<P> in(a.row, j, n);
      const Constants<P> k(a.row.constants);
      V before[S], d[S], dq[kQ];
      for (int i = 0; i < S; ++i) before[i] = reads(i) ? P::load(a.before[i] + j, n) : V(F(0));
      for (int i = 0; i < S; ++i) d[i] = P::load(a.grad[i] + j, n);
      if (a.grad_y) d[0] = d[0] + P::load(a.grad_y + j, n);
      Cell::template backward<P>(in.gates, before, in.q, k.value, V(a.row.dt), d, dz, ds, dq);
      for (int i = 0; i < Q; ++i) {
        sums[i].load(a.grad_prepared + i * a.row.H + j, n);
        sums[i].add(dq[i]);
      }
    }
    TSM_CELL void store(const TrainingBackward<F>& a, int64_t j, int n) const {
      for (int i = 0; i < G; ++i) P::store(dz[i], a.grad_z + i * a.row.H + j, n);
      for (int i = 0; i < S; ++i) P::store(ds[i], a.grad[i] + j, n);
      for (int i = 0; i < Q; ++i) sums[i].store(a.grad_prepared + i * a.row.H + j, n);
    }
  };

  static void forward(const TrainingForward<F>& a) {
    sweep<ForwardUnits, M, typename Wider<M>::Policy>(a.row.H, a);
  }
  static void backward(const TrainingBackward<F>& a) {
    sweep<BackwardUnits, M, typename Wider<M>::Policy>(a.row.H, a);
  }

  static int lanes(int64_t left) { return left < M::kLanes ? int(left) : M::kLanes; }

  static void prepare(int64_t H, const F* vectors, const F* constants, F* prepared) {
    const Constants<M> k(constants);
    for (int64_t j = 0; j < H && Q > 0; j += M::kLanes) {
      const int n = lanes(H - j);
      V v[kK], q[kQ];
      for (int i = 0; i < K; ++i) v[i] = M::load(vectors + i * H + j, n);
      Cell::template prepare<M>(v, k.value, q);
      for (int i = 0; i < Q; ++i) M::store(q[i], prepared + i * H + j, n);
    }
  }

  static void prepare_backward(int64_t H, const F* vectors, const F* constants,
                               const F* grad_prepared, F* grad_vectors) {
    const Constants<M> k(constants);
    for (int64_t j = 0; j < H && K > 0; j += M::kLanes) {
      const int n = lanes(H - j);
      V v[kK], dq[kQ], dv[kK];
      for (int i = 0; i < K; ++i) v[i] = M::load(vectors + i * H + j, n);
      for (int i = 0; i < Q; ++i) dq[i] = M::load(grad_prepared + i * H + j, n);
      Cell::template prepare_backward<M>(v, k.value, dq, dv);
      for (int i = 0; i < K; ++i) M::store(dv[i], grad_vectors + i * H + j, n);
    }
  }

  static constexpr CellTraining<F> table() {
    return {CellInfo::of<Cell>(), prepare, forward, backward, prepare_backward};
  }
};

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
