// The fused recurrence on a CPU, forward and backward, over the tables of an instruction-set level:
// ordinary code, as a template over the element type D.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/bfloat16.h"
#include "kernels/level.h"
#include "kernels/level_train.h"
#include "kernels/product.h"
#include "kernels/recurrence.h"
#include "kernels/through_time.h"

namespace tsm {

// What elements of type D are computed with.
template <class D>
struct Arithmetic;
template <>
struct Arithmetic<float> {
  using F = float;
  static constexpr Weights kWeights = Weights::kFloat32;
  static constexpr MatrixSource::Type kSource = MatrixSource::kFloat32;
};
template <>
struct Arithmetic<bfloat16> {
  using F = float;
  static constexpr Weights kWeights = Weights::kBFloat16;
  static constexpr MatrixSource::Type kSource = MatrixSource::kBFloat16;
};
template <>
struct Arithmetic<double> {
  using F = double;
  static constexpr Weights kWeights = Weights::kFloat64;
  static constexpr MatrixSource::Type kSource = MatrixSource::kFloat64;
};

// The functions that a pass calls.
template <class D>
struct Tools {
  using F = typename Arithmetic<D>::F;
  const CellTraining<F>& cell;
  const MatrixKernels& matrix;
  const LevelTraining& level;

  // n elements as numbers to compute with, and back.
  void widen(const D* from, int64_t n, F* to) const {
    if constexpr (sizeof(D) == sizeof(F))
      std::copy_n(from, n, to);
    else
      level.widen(from, n, to);
  }
  void round(const F* from, int64_t n, D* to) const {
    if constexpr (sizeof(D) == sizeof(F))
      std::copy_n(from, n, to);
    else
      level.round(from, n, to);
  }
};

// What forward and backward share. A cell has at most kMaxStates states.
template <class D>
class RecurrencePass {
 public:
  using F = typename Arithmetic<D>::F;
  static constexpr int kMaxStates = 8;
  static constexpr bool kSame = sizeof(D) == sizeof(F);  // D is F

  int64_t steps(int64_t b, int64_t rows) const {
    return lengths_ ? *std::max_element(lengths_ + b, lengths_ + b + rows) : T;
  }

 protected:
  RecurrencePass(const Tools<D>& tools, const RecurrenceShape& shape, const void* vectors,
                 const double* constants, const void* dt, const int64_t* lengths)
      : tools(tools),
        B(shape.B),
        T(shape.T),
        H(shape.H),
        GH(tools.cell.gates * shape.H),
        S(tools.cell.states),
        constants_(constants, constants + tools.cell.constants),
        prepared_(tools.cell.prepared * H),
        dt_(static_cast<const F*>(dt)),
        lengths_(lengths) {
    tools.cell.prepare(H, static_cast<const F*>(vectors), constants_.data(), prepared_.data());
  }

  bool reads(int state) const { return (tools.cell.reads >> state) & 1u; }
  bool over(int64_t b, int64_t t) const { return lengths_ && t >= lengths_[b]; }
  TrainingRow<F> row(const F* z, int64_t at) const {
    return {H, z, prepared_.data(), constants_.data(), dt_ ? dt_[at] : F(1)};
  }

  const Tools<D>& tools;
  const int64_t B, T, H, GH;
  const int S;
  std::vector<F> constants_, prepared_;
  const F* dt_;
  const int64_t* lengths_;
};

template <class D>
class ForwardPass : public RecurrencePass<D> {
 public:
  using Base = RecurrencePass<D>;
  using F = typename Base::F;
  static constexpr bool kForward = true;

  ForwardPass(const Tools<D>& tools, const RecurrenceForward& a, const PackedMatrix& u)
      : Base(tools, a.shape, a.vectors, a.constants, a.dt, a.lengths),
        a_(a),
        u_(u),
        zx_(static_cast<const D*>(a.zx)),
        y_(static_cast<D*>(a.y)),
        last_(static_cast<F*>(a.last)),
        trail_(static_cast<F*>(a.trail)),
        scratch_(a.z ? 0 : B * GH, Uninitialized()),
        fed_(u.rows(B)),
        z_(a.z ? static_cast<F*>(a.z) : scratch_.data()),
        z_row_(a.z ? T * GH : GH),
        z_step_(a.z ? GH : 0) {}

  void begin(int64_t b) const {
    for (int i = 0; i < S; ++i)
      std::copy_n(static_cast<const F*>(a_.state) + (i * B + b) * H, H, last_ + (i * B + b) * H);
  }
  void enter(int64_t b, int64_t t) const {
    tools.widen(zx_ + (b * T + t) * GH, GH, z(b, t));
    u_.encode(last_ + b * H, fed_.data() + b * u_.encoded_bytes());
  }
  void multiply(int64_t b, int64_t rows, int64_t t, int64_t first, int64_t last) const {
    u_.multiply(rows, fed_.data() + b * u_.encoded_bytes(), z(b, t), z_row_, first, last);
  }
  void leave(int64_t b, int64_t t) const {
    const int64_t at = b * T + t;
    F* state[Base::kMaxStates];
    F* before[Base::kMaxStates] = {};
    for (int i = 0, n = 0; i < S; ++i) {
      state[i] = last_ + (i * B + b) * H;
      if (trail_ && Base::reads(i)) before[i] = trail_ + (n++ * B * T + at) * H;
    }
    D* y = y_ + at * H;
    if (Base::over(b, t)) {
      std::fill_n(reinterpret_cast<char*>(y), H * sizeof(D), 0);
      for (int i = 0; i < S; ++i)
        if (before[i]) std::copy_n(state[i], H, before[i]);
      return;
    }
    if constexpr (Base::kSame) {
      tools.cell.forward({Base::row(z(b, t), at), state, before, y});
    } else {
      tools.cell.forward({Base::row(z(b, t), at), state, before, nullptr});
      tools.round(state[0], H, y);
    }
  }
  void finish(int64_t b, int64_t steps) const {
    const int64_t at = b * T + steps, left = T - steps;
    if (left == 0) return;
    std::memset(static_cast<void*>(y_ + at * H), 0, size_t(left * H) * sizeof(D));
    if (a_.z) std::fill_n(z_ + at * GH, left * GH, F(0));
    for (int i = 0, n = 0; i < S; ++i)
      if (trail_ && Base::reads(i)) std::fill_n(trail_ + (n++ * B * T + at) * H, left * H, F(0));
  }

 private:
  using Base::B, Base::T, Base::H, Base::GH, Base::S, Base::tools;

  F* z(int64_t b, int64_t t) const { return z_ + b * z_row_ + t * z_step_; }

  const RecurrenceForward& a_;
  const PackedMatrix& u_;
  const D* zx_;
  D* y_;
  F* last_;  // holds the states, step by step
  F* trail_;
  Aligned<F> scratch_;  // z of one step, where it is not kept
  Aligned<char> fed_;   // h as U sees it
  F* z_;
  int64_t z_row_, z_step_;  // elements from one to the next
};

template <class D>
class BackwardPass : public RecurrencePass<D> {
 public:
  using Base = RecurrencePass<D>;
  using F = typename Base::F;
  static constexpr bool kForward = false;

  BackwardPass(const Tools<D>& tools, const RecurrenceBackward& a, const PackedMatrix& u)
      : Base(tools, a.shape, a.vectors, a.constants, a.dt, a.lengths),
        a_(a),
        u_(u),
        z_(static_cast<const F*>(a.z)),
        trail_(static_cast<const F*>(a.trail)),
        grad_y_(static_cast<const D*>(a.grad_y)),
        grad_z_(static_cast<D*>(a.grad_z)),
        grad_(static_cast<F*>(a.grad_state)),
        fed_(u.rows(B)),
        scratch_(Base::kSame ? 0 : B * (GH + H), Uninitialized()),
        sums_(B * tools.cell.prepared * H) {}

  void begin(int64_t b) const {
    for (int i = 0; i < S; ++i) {
      F* to = grad_ + (i * B + b) * H;
      if (a_.grad_last)
        std::copy_n(static_cast<const F*>(a_.grad_last) + (i * B + b) * H, H, to);
      else
        std::fill_n(to, H, F(0));
    }
  }
  void enter(int64_t b, int64_t t) const {
    const int64_t at = b * T + t;
    char* fed = fed_.data() + b * u_.encoded_bytes();
    D* grad_z = grad_z_ + at * GH;
    if (Base::over(b, t)) {
      std::memset(static_cast<void*>(grad_z), 0, size_t(GH) * sizeof(D));
      std::memset(fed, 0, size_t(u_.encoded_bytes()));
      return;
    }
    const F* before[Base::kMaxStates] = {};
    F* grad[Base::kMaxStates];
    for (int i = 0, n = 0; i < S; ++i) {
      if (Base::reads(i)) before[i] = trail_ + (n++ * B * T + at) * H;
      grad[i] = grad_ + (i * B + b) * H;
    }
    const D* grad_y = grad_y_ ? grad_y_ + at * H : nullptr;
    const TrainingRow<F> row = Base::row(z_ + at * GH, at);
    double* sums = sums_.data() + b * tools.cell.prepared * H;
    if constexpr (Base::kSame) {
      tools.cell.backward({row, before, grad_y, grad, grad_z, sums});
      u_.encode(grad_z, fed);
    } else {
      F* wide = scratch_.data() + b * (GH + H);
      F* wide_y = grad_y ? wide + GH : nullptr;
      if (grad_y) tools.widen(grad_y, H, wide_y);
      tools.cell.backward({row, before, wide_y, grad, wide, sums});
      tools.round(wide, GH, grad_z);
      u_.encode(wide, fed);
    }
  }
  // The cell left the gradient of h that does not come through U; this adds the rest.
  void multiply(int64_t b, int64_t rows, int64_t, int64_t first, int64_t last) const {
    u_.multiply(rows, fed_.data() + b * u_.encoded_bytes(), grad_ + b * H, H, first, last);
  }
  void leave(int64_t, int64_t) const {}
  void finish(int64_t b, int64_t steps) const {
    if (steps == T) return;
    std::memset(static_cast<void*>(grad_z_ + (b * T + steps) * GH), 0,
                size_t((T - steps) * GH) * sizeof(D));
  }

  // Sums over the batch, row after row.
  void grad_vectors() const {
    const int64_t n = tools.cell.prepared * H;
    std::vector<double> total(size_t(n), 0.0);
    for (int64_t b = 0; b < B; ++b)
      for (int64_t i = 0; i < n; ++i) total[size_t(i)] += sums_[b * n + i];
    const std::vector<F> grad(total.begin(), total.end());
    tools.cell.prepare_backward(H, static_cast<const F*>(a_.vectors), Base::constants_.data(),
                                grad.data(), static_cast<F*>(a_.grad_vectors));
  }

 private:
  using Base::B, Base::T, Base::H, Base::GH, Base::S, Base::tools;

  const RecurrenceBackward& a_;
  const PackedMatrix& u_;
  const F* z_;
  const F* trail_;
  const D* grad_y_;
  D* grad_z_;
  F* grad_;               // [S,B,H]: the gradient of the states, step by step
  Aligned<char> fed_;     // dz as U sees it
  Aligned<F> scratch_;    // [B, GH + H]: dz and grad_y in F, where D is narrower
  Aligned<double> sums_;  // [B,Q,H]: of the prepared vectors' gradient, over the steps
};

template <class D>
void run_forward(const Tools<D>& tools, const RecurrenceForward& a) {
  const int64_t B = a.shape.B, H = a.shape.H;
  if (B == 0) return;
  ThreadPool& pool = training_pool(a.shape.threads);
  // z += h U^T: outputs are the gates' rows.
  const PackedMatrix u(tools.matrix,
                       {Arithmetic<D>::kSource, a.weight_h, tools.cell.gates * H, H, H, 1, nullptr},
                       pool);
  const ForwardPass<D> pass(tools, a, u);
  through_time(pass, B, u.panels(), Sharing::choose(B, u.bytes(), pool.threads()), pool);
}

template <class D>
void run_backward(const Tools<D>& tools, const RecurrenceBackward& a) {
  const int64_t B = a.shape.B, H = a.shape.H;
  ThreadPool& pool = training_pool(a.shape.threads);
  // dh += dz U: outputs are the units.
  const PackedMatrix u(tools.matrix,
                       {Arithmetic<D>::kSource, a.weight_h, H, tools.cell.gates * H, 1, H, nullptr},
                       pool);
  const BackwardPass<D> pass(tools, a, u);
  if (B > 0) through_time(pass, B, u.panels(), Sharing::choose(B, u.bytes(), pool.threads()), pool);
  if (tools.cell.vectors > 0) pass.grad_vectors();
}

}  // namespace tsm
