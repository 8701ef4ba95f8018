// The fused recurrence on a CPU, as a template over the cell and the element type.
//
// Rows of the batch do not depend on each other, so a block of kRows rows is taken through all its
// steps at once. Results are the same bits for any batch, chunk and number of threads.
#pragma once
#include <algorithm>
#include <vector>

#include "cells/math.h"
#include "cells/simd.h"
#include "kernels/accumulate.h"
#include "kernels/bfloat16.h"
#include "kernels/parallel.h"
#include "kernels/recurrence.h"

namespace tsm {

// What elements of type D are computed with: the type F in memory, and the math policy M over it.
template <class D>
struct Arithmetic {
  using F = float;
  using M = SimdFloat;
};
template <>
struct Arithmetic<double> {
  using F = double;
  using M = Scalar<double>;
};

template <class Cell, class D>
class RecurrenceCpu {
 public:
  static void forward(const RecurrenceForward& args);
  static void backward(const RecurrenceBackward& args);

 private:
  using F = typename Arithmetic<D>::F;
  using M = typename Arithmetic<D>::M;
  using V = typename M::V;
  using Weights = Panels<M, F>;
  static constexpr int G = Cell::kGates, S = Cell::kStates, K = Cell::kVectors;
  static constexpr int Q = Cell::kPrepared;
  static constexpr int kRows = kBlockRows;
  // Sizes of per-unit arrays; C++ has none of size 0.
  static constexpr int kQ = Q > 0 ? Q : 1, kK = K > 0 ? K : 1;
  static constexpr int kC = Cell::kConstants > 0 ? Cell::kConstants : 1;

  static int lanes(int64_t left) { return int(std::min<int64_t>(M::kLanes, left)); }
  static int64_t blocks(int64_t B) { return (B + kRows - 1) / kRows; }
  static constexpr bool reads(int state) { return (Cell::kReads >> state) & 1u; }

  struct Prepared {
    std::vector<F> q;  // [Q,H]
    V constants[kC];
  };
  static Prepared prepare(const F* vectors, const double* constants, int64_t H);
  static void forward_rows(const RecurrenceForward& a, const Prepared& p, const Weights& ut,
                           int64_t b0, int64_t rows);
  static void backward_rows(const RecurrenceBackward& a, const Prepared& p, const Weights& u,
                            int64_t b0, int64_t rows, double* grad_q);
};

template <class Cell, class D>
auto RecurrenceCpu<Cell, D>::prepare(const F* vectors, const double* constants, int64_t H)
    -> Prepared {
  Prepared p;
  p.q.resize(size_t(Q) * H);
  for (int i = 0; i < Cell::kConstants; ++i) p.constants[i] = V(F(constants[i]));
  for (int64_t j = 0; j < H && Q > 0; j += M::kLanes) {
    const int n = lanes(H - j);
    V v[kK], q[kQ];
    for (int i = 0; i < K; ++i) v[i] = M::load(vectors + i * H + j, n);
    Cell::template prepare<M>(v, p.constants, q);
    for (int i = 0; i < Q; ++i) M::store(q[i], &p.q[i * H + j], n);
  }
  return p;
}

template <class Cell, class D>
void RecurrenceCpu<Cell, D>::forward(const RecurrenceForward& a) {
  const int64_t B = a.shape.B, H = a.shape.H;
  const Prepared p = prepare(static_cast<const F*>(a.vectors), a.constants, H);
  const D* u = static_cast<const D*>(a.weight_h);
  const Weights ut(H, G * H, [&](int64_t k, int64_t j) { return F(u[j * H + k]); });
  parallel_for(blocks(B), a.shape.threads, [&](int64_t first, int64_t last) {
    for (int64_t b = first * kRows; b < std::min(last * kRows, B); b += kRows)
      forward_rows(a, p, ut, b, std::min<int64_t>(kRows, B - b));
  });
}

template <class Cell, class D>
void RecurrenceCpu<Cell, D>::forward_rows(const RecurrenceForward& a, const Prepared& p,
                                          const Weights& ut, int64_t b0, int64_t rows) {
  const int64_t B = a.shape.B, T = a.shape.T, H = a.shape.H;
  const int64_t GH = G * H;
  const D* zx = static_cast<const D*>(a.zx);
  const F* dts = static_cast<const F*>(a.dt);
  D* y = static_cast<D*>(a.y);
  F* last = static_cast<F*>(a.last);
  F* kept_z = static_cast<F*>(a.z);
  F* trail = static_cast<F*>(a.trail);
  std::vector<F> fed(rows * H), z(rows * GH);

  for (int i = 0; i < S; ++i)
    std::copy_n(static_cast<const F*>(a.state) + (i * B + b0) * H, rows * H,
                last + (i * B + b0) * H);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      const F* h = last + (b0 + r) * H;
      for (int64_t k = 0; k < H; ++k) fed[r * H + k] = F(D(h[k]));  // h as U sees it
      const D* row = zx + ((b0 + r) * T + t) * GH;
      for (int64_t k = 0; k < GH; ++k) z[r * GH + k] = F(row[k]);
    }
    ut.accumulate(rows, fed.data(), z.data());
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t b = b0 + r, at = b * T + t;
      if (kept_z) std::copy_n(&z[r * GH], GH, kept_z + at * GH);
      if (trail)
        for (int i = 0, n = 0; i < S; ++i)
          if (reads(i)) std::copy_n(last + (i * B + b) * H, H, trail + ((n++ * B + b) * T + t) * H);
      D* row = y + at * H;
      if (a.lengths && t >= a.lengths[b]) {
        std::fill_n(row, H, D(F(0)));
        continue;
      }
      const V dt(dts ? dts[at] : F(1));
      for (int64_t j = 0; j < H; j += M::kLanes) {
        const int n = lanes(H - j);
        V zj[G], s[S], q[kQ], out[S];
        for (int i = 0; i < G; ++i) zj[i] = M::load(&z[r * GH + i * H + j], n);
        for (int i = 0; i < S; ++i) s[i] = M::load(last + (i * B + b) * H + j, n);
        for (int i = 0; i < Q; ++i) q[i] = M::load(&p.q[i * H + j], n);
        Cell::template forward<M>(zj, s, q, p.constants, dt, out);
        for (int i = 0; i < S; ++i) M::store(out[i], last + (i * B + b) * H + j, n);
      }
      const F* h = last + b * H;
      for (int64_t j = 0; j < H; ++j) row[j] = D(h[j]);
    }
  }
}

template <class Cell, class D>
void RecurrenceCpu<Cell, D>::backward(const RecurrenceBackward& a) {
  const int64_t B = a.shape.B, H = a.shape.H;
  const F* vectors = static_cast<const F*>(a.vectors);
  const Prepared p = prepare(vectors, a.constants, H);
  const D* weight_h = static_cast<const D*>(a.weight_h);
  const Weights u(G * H, H, [&](int64_t k, int64_t j) { return F(weight_h[k * H + j]); });
  std::vector<double> parts(size_t(blocks(B)) * Q * H,
                            0.0);  // a sum a block, added up in their order
  parallel_for(blocks(B), a.shape.threads, [&](int64_t first, int64_t last) {
    for (int64_t b = first * kRows; b < std::min(last * kRows, B); b += kRows)
      backward_rows(a, p, u, b, std::min<int64_t>(kRows, B - b), parts.data() + b / kRows * Q * H);
  });
  std::vector<F> grad(size_t(Q) * H);
  for (int64_t i = 0; i < Q * H; ++i) {
    double sum = 0;
    for (int64_t block = 0; block < blocks(B); ++block) sum += parts[block * Q * H + i];
    grad[i] = F(sum);
  }
  F* grad_v = static_cast<F*>(a.grad_vectors);
  for (int64_t j = 0; j < H && K > 0; j += M::kLanes) {
    const int n = lanes(H - j);
    V v[kK], dq[kQ], dv[kK];
    for (int i = 0; i < K; ++i) v[i] = M::load(vectors + i * H + j, n);
    for (int i = 0; i < Q; ++i) dq[i] = M::load(&grad[i * H + j], n);
    Cell::template prepare_backward<M>(v, p.constants, dq, dv);
    for (int i = 0; i < K; ++i) M::store(dv[i], grad_v + i * H + j, n);
  }
}

template <class Cell, class D>
void RecurrenceCpu<Cell, D>::backward_rows(const RecurrenceBackward& a, const Prepared& p,
                                           const Weights& u, int64_t b0, int64_t rows,
                                           double* grad_q) {
  const int64_t B = a.shape.B, T = a.shape.T, H = a.shape.H;
  const int64_t GH = G * H;
  const F* dts = static_cast<const F*>(a.dt);
  const F* z = static_cast<const F*>(a.z);
  const F* trail = static_cast<const F*>(a.trail);
  const D* grad_y = static_cast<const D*>(a.grad_y);
  const F* grad_last = static_cast<const F*>(a.grad_last);
  D* grad_z = static_cast<D*>(a.grad_z);
  F* grad_state = static_cast<F*>(a.grad_state);  // holds the gradient of the states, step by step
  std::vector<F> dz(rows * GH), dh(rows * H);

  for (int i = 0; i < S; ++i) {
    F* to = grad_state + (i * B + b0) * H;
    if (grad_last)
      std::copy_n(grad_last + (i * B + b0) * H, rows * H, to);
    else
      std::fill_n(to, rows * H, F(0));
  }
  for (int64_t t = T - 1; t >= 0; --t) {
    std::fill(dz.begin(), dz.end(), F(0));
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t b = b0 + r, at = b * T + t;
      if (a.lengths && t >= a.lengths[b]) continue;
      const V dt(dts ? dts[at] : F(1));
      F* dh_t = &dh[r * H];  // gradient of h_t: from y, and from the steps after
      for (int64_t j = 0; j < H; ++j)
        dh_t[j] = grad_state[b * H + j] + (grad_y ? F(grad_y[at * H + j]) : F(0));
      for (int64_t j = 0; j < H; j += M::kLanes) {
        const int n = lanes(H - j);
        V zj[G], s[S], q[kQ], d[S], dzj[G], ds[S], dq[kQ];
        for (int i = 0; i < G; ++i) zj[i] = M::load(z + at * GH + i * H + j, n);
        for (int i = 0, m = 0; i < S; ++i)
          s[i] = reads(i) ? M::load(trail + ((m++ * B + b) * T + t) * H + j, n) : V(F(0));
        for (int i = 0; i < Q; ++i) q[i] = M::load(&p.q[i * H + j], n);
        d[0] = M::load(dh_t + j, n);
        for (int i = 1; i < S; ++i) d[i] = M::load(grad_state + (i * B + b) * H + j, n);
        Cell::template backward<M>(zj, s, q, p.constants, dt, d, dzj, ds, dq);
        for (int i = 0; i < G; ++i) M::store(dzj[i], &dz[r * GH + i * H + j], n);
        for (int i = 0; i < S; ++i) M::store(ds[i], grad_state + (i * B + b) * H + j, n);
        for (int i = 0; i < Q; ++i) {
          F part[M::kLanes];
          M::store(dq[i], part, n);
          for (int lane = 0; lane < n; ++lane) grad_q[i * H + j + lane] += double(part[lane]);
        }
      }
    }
    std::fill(dh.begin(), dh.end(), F(0));
    u.accumulate(rows, dz.data(), dh.data());
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = (b0 + r) * T + t;
      for (int64_t j = 0; j < H; ++j) grad_state[(b0 + r) * H + j] += dh[r * H + j];
      for (int64_t k = 0; k < GH; ++k) grad_z[at * GH + k] = D(dz[r * GH + k]);
    }
  }
}

}  // namespace tsm
