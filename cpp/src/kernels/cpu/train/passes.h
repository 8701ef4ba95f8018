// The fused recurrence on a CPU, forward and backward: ordinary code that calls the functions of an
// instruction set, as a template over the element type D.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/train/layer_products.h"
#include "kernels/cpu/train/time_loop.h"
#include "kernels/recurrence.h"

namespace tsm {

// What forward and backward share.
template <class D>
class RecurrencePass {
 public:
  using F = typename Arithmetic<D>::F;
  static constexpr bool kSame = sizeof(D) == sizeof(F);  // D is F

  int64_t steps(int64_t b, int64_t rows) const {
    return lengths_ ? *std::max_element(lengths_ + b, lengths_ + b + rows) : T;
  }

 protected:
  RecurrencePass(const TrainingKernels<D>& kernels, const RecurrenceShape& shape,
                 const void* vectors, const double* constants, const void* dt,
                 const int64_t* lengths)
      : kernels(kernels),
        B(shape.B),
        T(shape.T),
        H(shape.H),
        GH(kernels.cell.gates * shape.H),
        S(kernels.cell.states),
        constants_(constants, constants + kernels.cell.constants),
        prepared_(kernels.cell.prepared * H),
        dt_(static_cast<const F*>(dt)),
        lengths_(lengths) {
    kernels.cell.prepare(H, static_cast<const F*>(vectors), constants_.data(), prepared_.data());
  }

  bool reads(int state) const { return (kernels.cell.reads >> state) & 1u; }
  bool over(int64_t b, int64_t t) const { return lengths_ && t >= lengths_[b]; }
  // The number of a step of row b in arrays [B,T], such as y, and in the saved arrays [T,B].
  int64_t given(int64_t b, int64_t t) const { return b * T + t; }
  int64_t saved(int64_t b, int64_t t) const { return t * B + b; }
  TrainingRow<F> row(const F* gates, int64_t b, int64_t t) const {
    return {H, gates, prepared_.data(), constants_.data(), dt_ ? dt_[given(b, t)] : F(1)};
  }
  // Given a step of row b in an array [B,T,width], prefetches the same step of the next row. If H
  // is large, the hardware prefetcher does this.
  template <class E>
  void fetch_next(int64_t b, const E* step, int64_t width) const {
    constexpr int64_t kLong = 1024, kLine = 64;  // bytes
    if (!step || H * int64_t(sizeof(F)) >= kLong || b + 1 == B) return;
    const char* const from = reinterpret_cast<const char*>(step + T * width);
    const int64_t bytes = width * int64_t(sizeof(E));
    for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i);
    __builtin_prefetch(from + bytes - 1);  // in another cache line if `from` starts inside one
  }

  const TrainingKernels<D>& kernels;
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

  ForwardPass(const TrainingKernels<D>& kernels, const RecurrenceForward& a, const PackedMatrix& u,
              const InputProduct<D>& input, const WorkSplit& work)
      : Base(kernels, a.shape, a.vectors, a.constants, a.dt, a.lengths),
        a_(a),
        u_(u),
        input_(input),
        y_(static_cast<D*>(a.y)),
        last_(static_cast<F*>(a.last)),
        saved_states_(static_cast<F*>(a.saved_states)),
        block_(work.by_outputs ? T : steps_at_once(work)),
        by_time_(work.by_outputs || work.parts == 1),
        in_place_(a.z && by_time_),
        stride_(in_place_ ? GH : GH + kGap),
        row_(by_time_ ? stride_ : block_ * stride_),
        step_(by_time_ ? B * stride_ : stride_),
        scratch_(in_place_ ? 0 : B * block_ * stride_ * int64_t(sizeof(F))),
        as_is_(Base::kSame && u.encoded_bytes() == H * int64_t(sizeof(F))),
        encoded_h_(u.rows(as_is_ ? 0 : B)),
        z_(in_place_ ? static_cast<F*>(a.z) : reinterpret_cast<F*>(scratch_.data())) {}

  void start_rows(int64_t b, int64_t rows) const {
    for (int i = 0; i < S; ++i) {
      F* to = last_ + (i * B + b) * H;
      if (a_.state)
        std::copy_n(static_cast<const F*>(a_.state) + (i * B + b) * H, rows * H, to);
      else
        std::fill_n(to, rows * H, F(0));
    }
  }
  int64_t block() const { return block_; }
  void project_inputs(int64_t b, int64_t rows, int64_t t, int64_t steps) const {
    if (by_time_ || steps == block_)
      return input_.run(b, rows, t, steps, by_time_, z(b, t), stride_);
    for (int64_t i = b; i < b + rows; ++i) input_.run(i, 1, t, steps, false, z(i, t), stride_);
  }
  void before_product(int64_t b, int64_t) const {
    if (!as_is_) u_.encode(last_ + b * H, encoded_h(b));
  }
  void multiply(int64_t b, int64_t rows, int64_t t, int64_t first, int64_t last) const {
    const void* const h = as_is_ ? static_cast<const void*>(last_ + b * H) : encoded_h(b);
    u_.multiply(rows, h, {z(b, t), row_}, first, last);
  }
  void after_product(int64_t b, int64_t t) const {
    const int64_t at = Base::saved(b, t);
    F* state[kMostNames];
    F* before[kMostNames] = {};
    for (int i = 0, n = 0; i < S; ++i) {
      state[i] = last_ + (i * B + b) * H;
      if (saved_states_ && Base::reads(i)) before[i] = saved_states_ + (n++ * B * T + at) * H;
    }
    D* y = y_ + Base::given(b, t) * H;
    F* const active = a_.z ? static_cast<F*>(a_.z) + at * GH : nullptr;
    Base::fetch_next(b, y, H);
    if (Base::over(b, t)) {
      std::fill_n(reinterpret_cast<char*>(y), H * sizeof(D), 0);
      if (active) std::fill_n(active, GH, F(0));
      for (int i = 0; i < S; ++i)
        if (before[i]) std::copy_n(state[i], H, before[i]);
      return;
    }
    if constexpr (Base::kSame) {
      kernels.cell.forward({Base::row(z(b, t), b, t), state, before, active, y});
    } else {
      kernels.cell.forward({Base::row(z(b, t), b, t), state, before, active, nullptr});
      kernels.round(state[0], H, y);
    }
  }
  void finish_rows(int64_t b, int64_t rows, int64_t steps) const {
    for (int64_t i = b; i < b + rows && steps < T; ++i)
      std::memset(static_cast<void*>(y_ + Base::given(i, steps) * H), 0,
                  size_t((T - steps) * H) * sizeof(D));
    for (int64_t t = steps; t < T; ++t) {
      const int64_t at = Base::saved(b, t);
      if (a_.z) std::fill_n(static_cast<F*>(a_.z) + at * GH, rows * GH, F(0));
      for (int i = 0, n = 0; i < S; ++i)
        if (saved_states_ && Base::reads(i))
          std::fill_n(saved_states_ + (n++ * B * T + at) * H, rows * H, F(0));
    }
  }

 private:
  using Base::B, Base::T, Base::H, Base::GH, Base::S, Base::kernels;

  // Rows that are a multiple of a page apart would share L1 sets.
  static constexpr int64_t kGap = kAlignment / int64_t(sizeof(F));
  // As many steps as fill the buffers of the product with W; their z stays in L2 next to W and U.
  int64_t steps_at_once(const WorkSplit& work) const {
    const int64_t rows = (B + work.parts - 1) / work.parts;
    return std::min(std::max<int64_t>(2 * EncodedRows<D>::kRows / rows, 1), T);
  }
  char* encoded_h(int64_t b) const { return encoded_h_.data() + b * u_.encoded_bytes(); }
  F* z(int64_t b, int64_t t) const { return z_ + b * row_ + (in_place_ ? t : t % block_) * step_; }

  const RecurrenceForward& a_;
  const PackedMatrix& u_;
  const InputProduct<D>& input_;
  D* y_;
  F* last_;  // the current states during the steps
  F* saved_states_;
  const int64_t block_;       // number of steps whose z is computed at a time
  const bool by_time_;        // z is ordered [block, B], not [B, block]
  const bool in_place_;       // z is stored where the gates are saved
  const int64_t stride_;      // elements from row to row of z
  const int64_t row_, step_;  // elements from one row of the batch, and one step, to the next
  CachedBuffer scratch_;
  const bool as_is_;         // U reads h where it is
  Aligned<char> encoded_h_;  // h as input of U
  F* z_;
};

template <class D>
class BackwardPass : public RecurrencePass<D> {
 public:
  using Base = RecurrencePass<D>;
  using F = typename Base::F;
  static constexpr bool kForward = false;

  // gradient: holds dz, F [T,B,GH].
  BackwardPass(const TrainingKernels<D>& kernels, const RecurrenceBackward& a,
               const PackedMatrix& u, const InputGradient<D>& gradient)
      : Base(kernels, a.shape, a.vectors, a.constants, a.dt, a.lengths),
        a_(a),
        u_(u),
        gradient_(gradient),
        z_(static_cast<const F*>(a.z)),
        saved_states_(static_cast<const F*>(a.saved_states)),
        grad_y_(static_cast<const D*>(a.grad_y)),
        grad_(static_cast<F*>(a.grad_state)),
        as_is_(Base::kSame && u.encoded_bytes() == GH * int64_t(sizeof(F))),
        encoded_dz_(u.rows(as_is_ ? 0 : B)),
        grad_y_in_f_(Base::kSame ? 0 : B * H, Uninitialized()),
        sums_(B * kernels.cell.prepared * H) {}

  void start_rows(int64_t b, int64_t rows) const {
    for (int i = 0; i < S; ++i) {
      F* to = grad_ + (i * B + b) * H;
      if (a_.grad_last)
        std::copy_n(static_cast<const F*>(a_.grad_last) + (i * B + b) * H, rows * H, to);
      else
        std::fill_n(to, rows * H, F(0));
    }
  }
  int64_t block() const { return T; }
  void project_inputs(int64_t, int64_t, int64_t, int64_t) const {}
  void before_product(int64_t b, int64_t t) const {
    const int64_t at = Base::saved(b, t);
    if (Base::over(b, t)) {
      clear(at, 1);
      if (!as_is_) std::fill_n(encoded_dz(b), u_.encoded_bytes(), char(0));
      return;
    }
    const F* before[kMostNames] = {};
    F* grad[kMostNames];
    for (int i = 0, n = 0; i < S; ++i) {
      if (Base::reads(i)) before[i] = saved_states_ + (n++ * B * T + at) * H;
      grad[i] = grad_ + (i * B + b) * H;
    }
    const D* grad_y = grad_y_ ? grad_y_ + Base::given(b, t) * H : nullptr;
    Base::fetch_next(b, grad_y, H);
    const TrainingRow<F> row = Base::row(z_ + at * GH, b, t);
    double* sums = sums_.data() + b * kernels.cell.prepared * H;
    F* const dz = gradient_.dz() + at * GH;
    if constexpr (Base::kSame) {
      kernels.cell.backward({row, before, grad_y, grad, dz, sums});
    } else {
      F* const in_f = grad_y ? grad_y_in_f_.data() + b * H : nullptr;
      if (grad_y) kernels.widen(grad_y, H, in_f);
      kernels.cell.backward({row, before, in_f, grad, dz, sums});
    }
    if (!as_is_) u_.encode(dz, encoded_dz(b));
  }
  // The cell has computed the part of the gradient of h that does not go through U; this adds the
  // other part.
  void multiply(int64_t b, int64_t rows, int64_t t, int64_t first, int64_t last) const {
    const F* const dz = gradient_.dz() + Base::saved(b, t) * GH;
    const void* const from = as_is_ ? static_cast<const void*>(dz) : encoded_dz(b);
    // The cell reads the gates of the previous step next.
    Next next;
    if (t > 0 && last == u_.panels())
      next = {z_ + Base::saved(b, t - 1) * GH, rows * GH * int64_t(sizeof(F))};
    u_.multiply(rows, from, {grad_ + b * H, H}, first, last, next);
  }
  void after_product(int64_t, int64_t) const {}
  void finish_rows(int64_t b, int64_t rows, int64_t steps) const {
    for (int64_t t = steps; t < T; ++t) clear(Base::saved(b, t), rows);
  }

  // Sums over the batch, in the order of the rows.
  void grad_vectors() const {
    const int64_t n = kernels.cell.prepared * H;
    std::vector<double> total(size_t(n), 0.0);
    for (int64_t b = 0; b < B; ++b)
      for (int64_t i = 0; i < n; ++i) total[size_t(i)] += sums_[b * n + i];
    const std::vector<F> grad(total.begin(), total.end());
    kernels.cell.prepare_backward(H, static_cast<const F*>(a_.vectors), Base::constants_.data(),
                                  grad.data(), static_cast<F*>(a_.grad_vectors));
  }

 private:
  using Base::B, Base::T, Base::H, Base::GH, Base::S, Base::kernels;

  char* encoded_dz(int64_t b) const { return encoded_dz_.data() + b * u_.encoded_bytes(); }
  // Sets dz of `count` rows to 0, from row `at` of [T,B] on.
  void clear(int64_t at, int64_t count) const {
    std::fill_n(gradient_.dz() + at * GH, count * GH, F(0));
  }

  const RecurrenceBackward& a_;
  const PackedMatrix& u_;
  const InputGradient<D>& gradient_;
  const F* z_;
  const F* saved_states_;
  const D* grad_y_;
  F* grad_;                   // [S,B,H]: the current gradient of the states
  const bool as_is_;          // U reads dz where it is
  Aligned<char> encoded_dz_;  // dz as input of U
  Aligned<F> grad_y_in_f_;    // [B,H], if D is narrower
  Aligned<double> sums_;      // [B,Q,H]: gradient of the prepared vectors, summed over the steps
};

// z += h U^T: outputs are the gates' rows. Without U this is an empty matrix, here and below.
template <class D>
PackedMatrix forward_u(const TrainingKernels<D>& kernels, const Elements& u, int64_t H,
                       ThreadPool& pool) {
  if (!u.data) return {kernels.matrix, kernels.source(u, 0, 0, 0, 1), pool};
  return {kernels.matrix, kernels.source(u, kernels.cell.gates * H, H, H, 1), pool};
}
// dh += dz U: the outputs of this product are the units.
template <class D>
PackedMatrix backward_u(const TrainingKernels<D>& kernels, const Elements& u, int64_t H,
                        ThreadPool& pool) {
  if (!u.data) return {kernels.matrix, kernels.source(u, 0, 0, 1, 0), pool};
  return {kernels.matrix, kernels.source(u, H, kernels.cell.gates * H, 1, H), pool};
}

// A whole layer: B, T >= 1.
template <class D>
void run_layer_forward(const TrainingKernels<D>& kernels, const LayerForward& a) {
  const RecurrenceShape& shape = a.recurrence.shape;
  ThreadPool& pool = training_pool(shape.threads);
  const PackedMatrix u =
      forward_u(kernels, {a.recurrence.weight_h, a.input.full_precision_weights}, shape.H, pool);
  const InputProduct<D> input(kernels, shape, a.input, pool);
  const WorkSplit work = WorkSplit::choose(shape.B, u.bytes(), pool.threads());
  time_loop(ForwardPass<D>(kernels, a.recurrence, u, input, work), shape.B, u, work, pool);
}

template <class D>
void run_layer_backward(const TrainingKernels<D>& kernels, const LayerBackward& a) {
  const RecurrenceShape& shape = a.recurrence.shape;
  ThreadPool& pool = training_pool(shape.threads);
  const PackedMatrix u =
      backward_u(kernels, {a.recurrence.weight_h, a.input.full_precision_weights}, shape.H, pool);
  const InputGradient<D> input(kernels, shape, a.input, a.grad_x, a.recurrence.grad_z, pool);
  const BackwardPass<D> pass(kernels, a.recurrence, u, input);
  time_loop(pass, shape.B, u, WorkSplit::choose(shape.B, u.bytes(), pool.threads()), pool);
  if (kernels.cell.vectors > 0) pass.grad_vectors();
  WeightGradients<D>(kernels, a, input).run(pool);
}

}  // namespace tsm
