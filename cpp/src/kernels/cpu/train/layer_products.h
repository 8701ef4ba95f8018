// The products around the recurrence of a layer, with the same kernels as the recurrence.
//
// Each sum has a fixed order, whatever the number of threads: threads split rows of the batch and
// outputs, and how a sum is divided depends only on its shape.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/product/packed_matrix.h"
#include "kernels/cpu/train/training_kernels.h"
#include "kernels/layer.h"

namespace tsm {

// Rows of [B,T] that are copied in the order [T,B] are far apart: prefetch them some rows ahead.
constexpr int64_t kFetchedRows = 2;
inline void fetch(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kAlignment)
    __builtin_prefetch(static_cast<const char*>(from) + i);
}

// Rows of [B,T] in the form that a product reads: encoded into a buffer, or in place if they are
// contiguous and encoding would only copy them.
template <class D>
class EncodedRows {
 public:
  using F = typename Arithmetic<D>::F;
  static constexpr int64_t kRows = 96;  // per buffer, which stays in L2

  // together: the caller accesses rows only with `at`, never with `put`.
  EncodedRows(const TrainingKernels<D>& kernels, const PackedMatrix& matrix, const Elements& from,
              int64_t width, bool together)
      : kernels_(kernels),
        matrix_(matrix),
        from_(from),
        width_(width),
        as_is_((sizeof(D) == sizeof(F) || !from.wide) &&
               matrix.encoded_bytes() == width * int64_t(sizeof(D))),
        encoded_(matrix.rows(as_is_ && together ? 0 : kRows)),
        row_(width, Uninitialized()) {}

  // Rows [first, first + count), up to kRows of them.
  const void* at(int64_t first, int64_t count) const {
    if (as_is_) return row(first);
    for (int64_t r = 0; r < count; ++r) put(first + r, r);
    return encoded_.data();
  }
  // Encodes a single row into position `place` of `data`.
  void put(int64_t number, int64_t place) const {
    char* const to = encoded_.data() + place * matrix_.encoded_bytes();
    if (as_is_) {
      std::memcpy(to, row(number), size_t(matrix_.encoded_bytes()));
      return;
    }
    kernels_.read(from_, number * width_, width_, row_.data());
    matrix_.encode(row_.data(), to);
  }
  void fetch(int64_t number) const {
    if (as_is_) tsm::fetch(row(number), width_ * int64_t(sizeof(D)));
  }
  const void* data() const { return encoded_.data(); }

 private:
  const D* row(int64_t number) const { return static_cast<const D*>(from_.data) + number * width_; }

  const TrainingKernels<D>& kernels_;
  const PackedMatrix& matrix_;
  const Elements from_;
  const int64_t width_;
  const bool as_is_;
  Aligned<char> encoded_;
  Aligned<F> row_;
};

// zx = W x + b.
template <class D>
class InputProduct {
 public:
  using F = typename Arithmetic<D>::F;

  InputProduct(const TrainingKernels<D>& kernels, const RecurrenceShape& shape,
               const LayerInput& input, ThreadPool& pool)
      : kernels_(kernels),
        input_(input),
        T_(shape.T),
        GH_(kernels.cell.gates * shape.H),
        w_(kernels.matrix,
           kernels.source({input.weight_x, input.full_precision_weights}, GH_, input.I, input.I, 1),
           pool),
        bias_(GH_, Uninitialized()) {
    kernels.read({input.bias, input.full_precision_weights}, 0, GH_, bias_.data());
  }

  // Computes the steps [t, t + steps) of rows [b, b + count) of the batch into z [count, steps], or
  // [steps, count] if `by_time`; rows of z are `stride` elements apart.
  void run(int64_t b, int64_t count, int64_t t, int64_t steps, bool by_time, F* z,
           int64_t stride) const {
    const bool together = count == 1 || (steps == T_ && !by_time);
    const auto number = [&](int64_t r) {  // in x, of row r of z
      return by_time ? (b + r % count) * T_ + t + r / count : (b + r / steps) * T_ + t + r % steps;
    };
    const EncodedRows<D> x(kernels_, w_, {input_.x, input_.full_precision_x}, input_.I, together);
    for (int64_t done = 0; done < count * steps; done += x.kRows) {
      const int64_t rows = std::min(x.kRows, count * steps - done);
      for (int64_t r = 0; r < rows && !together; ++r) {
        x.fetch(number(done + std::min(r + kFetchedRows, rows - 1)));
        x.put(number(done + r), r);
      }
      const void* const from = together ? x.at(b * T_ + t + done, rows) : x.data();
      w_.multiply(rows, from, {z + done * stride, stride, bias_.data()}, 0, w_.panels());
    }
  }

 private:
  const TrainingKernels<D>& kernels_;
  const LayerInput& input_;
  const int64_t T_, GH_;
  PackedMatrix w_;
  Aligned<F> bias_;
};

// Holds dz of all steps, and computes dx = dz W.
template <class D>
class InputGradient {
 public:
  using F = typename Arithmetic<D>::F;

  // grad_x: null if it is not wanted. dz: scratch memory, or null to allocate it.
  InputGradient(const TrainingKernels<D>& kernels, const RecurrenceShape& shape,
                const LayerInput& input, void* grad_x, void* dz, ThreadPool& pool)
      : kernels_(kernels),
        input_(input),
        B_(shape.B),
        T_(shape.T),
        GH_(kernels.cell.gates * shape.H),
        grad_x_(grad_x),
        w_(kernels.matrix,
           kernels.source({input.weight_x, input.full_precision_weights}, grad_x ? input.I : 0, GH_,
                          1, input.I),
           pool),
        zeros_(grad_x ? input.I : 0),
        own_(dz ? 0 : shape.B * shape.T * GH_ * int64_t(sizeof(F))),
        dz_(dz ? static_cast<F*>(dz) : reinterpret_cast<F*>(own_.data())) {}

  F* dz() const { return dz_; }  // [T,B,GH]

  // Computes one of several parts of dx when dz is complete.
  void run(int64_t part, int64_t parts) const {
    if (!grad_x_) return;
    constexpr int64_t kRows = EncodedRows<D>::kRows;
    const int64_t blocks = (B_ * T_ + kRows - 1) / kRows;
    const int64_t last = std::min(B_ * T_, blocks * (part + 1) / parts * kRows);  // of [T,B]
    constexpr bool kSame = sizeof(D) == sizeof(F);
    const bool direct = kSame || input_.full_precision_x;
    const int64_t I = input_.I;
    const EncodedRows<D> rows(kernels_, w_, {dz(), true}, GH_, true);
    const Aligned<F> scratch(kRows * I, Uninitialized());
    for (int64_t first = blocks * part / parts * kRows; first < last; first += kRows) {
      const int64_t some = std::min(kRows, last - first);
      w_.multiply(some, rows.at(first, some), {scratch.data(), I, zeros_.data()}, 0, w_.panels());
      for (int64_t r = 0; r < some; ++r) {
        const int64_t t = (first + r) / B_, at = ((first + r) % B_ * T_ + t) * I;
        const F* const row = scratch.data() + r * I;
        if (direct)
          std::copy_n(row, I, static_cast<F*>(grad_x_) + at);
        else
          kernels_.round(row, I, static_cast<D*>(grad_x_) + at);
      }
    }
  }

 private:
  const TrainingKernels<D>& kernels_;
  const LayerInput& input_;
  const int64_t B_, T_, GH_;
  void* grad_x_;
  PackedMatrix w_;
  Aligned<F> zeros_;
  CachedBuffer own_;
  F* dz_;
};

// dW, db and dU: sums of dz^T times x, 1 and h over rows and steps. Steps are processed in blocks:
// dz is transposed so that its columns become rows of activations, and x and h become the matrices.
// If the gradients are small, the rows of [T,B] are summed in two halves, one for each of two
// threads. Otherwise, and with more threads, the threads split the rows of the gradients. Each
// packs x and h into its own cache, which is faster than reading what another core has packed.
//
// A long chain of float32 additions loses digits, so every kChain rows are summed separately.
template <class D>
class WeightGradients {
 public:
  using F = typename Arithmetic<D>::F;

  // The threads compute `input` as well, so that they need not wait for each other in between.
  WeightGradients(const TrainingKernels<D>& kernels, const LayerBackward& a,
                  const InputGradient<D>& input)
      : kernels_(kernels),
        products_(kernels.matrix),
        a_(a),
        B_(a.recurrence.shape.B),
        T_(a.recurrence.shape.T),
        H_(a.recurrence.shape.H),
        I_(a.input.I),
        GH_(kernels.cell.gates * H_),
        K_(B_ * T_),
        block_(sums_bytes() <= kSmallSums ? kSmallBlock : kBlock),
        input_(input),
        dz_(input.dz()),
        zeros_(std::max(I_, H_)),
        h_(a.h && sizeof(D) != sizeof(F) ? B_ * H_ : 0),
        sums_(direct() ? 0 : sums_bytes()) {
    if (h_.size() > 0) kernels.round(static_cast<const F*>(a.h), B_ * H_, h_.data());
  }

  void run(ThreadPool& pool) const {
    const int64_t halves = K_ >= 2 * kBlock && sums_bytes() <= kSumsBytes ? 2 : 1;
    const int64_t threads = std::clamp<int64_t>(GH_ / kRows, 1, pool.threads());
    const int64_t parts = (threads + halves - 1) / halves;  // of a half's gradients
    const int64_t most = (GH_ + parts - 1) / parts;         // rows of a part
    const int64_t transposed = most * products_.encoded_bytes(block_);
    const int64_t matrix = padded(products_.packed_bytes(std::max(I_, H_), block_));
    const int64_t right = padded(block_ * int64_t(sizeof(void*)));
    const bool chains = (K_ + halves - 1) / halves > kChain;
    const int64_t partial = chains ? padded(most * (I_ + H_) * int64_t(sizeof(F))) : 0;
    const int64_t columns = padded(most * int64_t(sizeof(F)));
    const int64_t each = transposed + matrix + right + columns + partial;
    const CachedBuffer memory(halves * parts * each), second((halves - 1) * sums_bytes());
    const Gradients sums[] = {gradients(), halves > 1 ? gradients(second) : Gradients{}};
    pool.run(halves * parts, [&](int64_t task) {
      input_.run(task, halves * parts);
      const int64_t half = task / parts, part = task % parts;
      const int64_t begin = GH_ * part / parts, end = GH_ * (part + 1) / parts;
      const Gradients& to = sums[half];
      char* const own = memory.data() + task * each;
      char* const behind = own + transposed + matrix + right;
      F* const sum = reinterpret_cast<F*>(behind + columns);
      const Scratch scratch{own,
                            own + transposed,
                            reinterpret_cast<const void**>(own + transposed + matrix),
                            reinterpret_cast<F*>(behind),
                            chains ? sum : rows_from(begin, I_, to.w),
                            chains ? sum + most * I_ : rows_from(begin, H_, to.u)};
      const int64_t first = K_ * half / halves, rows = K_ * (half + 1) / halves - first;
      for (int64_t done = 0; done < rows; done += block_) {
        add({first + done, std::min(block_, rows - done), done}, begin, end, scratch, to.b);
        const bool complete = done + block_ >= rows || (done + block_) % kChain == 0;
        if (chains && complete)
          add_to(to, done < kChain, {scratch.w, scratch.u, nullptr}, begin, end);
      }
    });
    if (halves == 1 && direct()) return;
    pool.run(threads, [&](int64_t part) {
      const int64_t begin = GH_ * part / threads, end = GH_ * (part + 1) / threads;
      if (halves > 1) add_to(sums[0], false, sums[1].from(begin, I_, H_), begin, end);
      if (!direct()) round(sums[0], begin, end);
    });
  }

 private:
  // Rows of [T,B] in a block. Fewer take less of L2, but for every block all gradients are read and
  // written: if those are large, they come from memory.
  static constexpr int64_t kBlock = 256, kSmallBlock = 128;
  static constexpr int64_t kSmallSums = 4 << 20;  // bytes
  static constexpr int64_t kChain = 8 * kBlock;
  static constexpr int64_t kSumsBytes = 1 << 20;  // of a half, to stay in cache
  static constexpr int64_t kColumns = 16;         // of dz, transposed together
  static constexpr int64_t kStrip = 64;           // rows of dz that stay in L2 while transposed
  static constexpr int64_t kRows = 48;            // per thread, at least

  struct Block {
    int64_t first, count;  // rows of [T,B]
    int64_t done;          // rows of its half before it
  };

  // The gradients [GH,I], [GH,H] and [GH], or rows of them; null: not wanted.
  struct Gradients {
    F *w, *u, *b;
    Gradients from(int64_t row, int64_t I, int64_t H) const {
      return {rows_from(row, I, w), rows_from(row, H, u), b + row};
    }
  };

  // Scratch memory of one thread for a block.
  struct Scratch {
    char* transposed;    // [rows of the thread, block] encoded
    char* matrix;        // [I or H, block] packed
    const void** right;  // [block]: rows of x or of h
    F* columns;          // [rows of the thread]: sums of a block's columns of dz
    F *w, *u;  // [rows of the thread, I] and [.., H]: partial sums, or the gradients themselves
  };

  bool direct() const { return sizeof(D) == sizeof(F) || a_.input.full_precision_weights; }
  int64_t sums_bytes() const { return GH_ * (I_ + H_ + 1) * int64_t(sizeof(F)); }
  // The gradients in `memory`, or in the caller's arrays.
  Gradients gradients(const CachedBuffer& memory) const {
    F* const at = reinterpret_cast<F*>(memory.data());
    return {a_.grad_weight_x ? at : nullptr, a_.grad_weight_h ? at + GH_ * I_ : nullptr,
            at + GH_ * (I_ + H_)};
  }
  Gradients gradients() const {
    if (!direct()) return gradients(sums_);
    return {static_cast<F*>(a_.grad_weight_x), static_cast<F*>(a_.grad_weight_h),
            static_cast<F*>(a_.grad_bias)};
  }
  static F* rows_from(int64_t begin, int64_t width, F* grad) {
    return grad ? grad + begin * width : nullptr;  // null: not wanted
  }
  void round(const Gradients& from, int64_t begin, int64_t end) const {
    const auto one = [&](const F* sums, int64_t width, void* to) {
      if (to)
        kernels_.round(sums + begin * width, (end - begin) * width,
                       static_cast<D*>(to) + begin * width);
    };
    one(from.w, I_, a_.grad_weight_x);
    one(from.u, H_, a_.grad_weight_h);
    one(from.b, 1, a_.grad_bias);
  }

  // Adds a block's contribution to rows [begin, end) of all gradients.
  void add(const Block& block, int64_t begin, int64_t end, const Scratch& scratch,
           F* grad_b) const {
    transpose_dz(block, begin, end, scratch, grad_b);
    if (a_.grad_weight_x) {
      find_x(block, scratch.right);
      multiply(block, a_.input.full_precision_x, I_, end - begin, scratch, scratch.w);
    }
    if (a_.grad_weight_h) {
      find_before(block, scratch.right);
      multiply(block, false, H_, end - begin, scratch, scratch.u);
    }
  }

  // Adds `from`, which holds rows [begin, end), to those rows of `to`; with `first` it overwrites
  // them.
  void add_to(const Gradients& to, bool first, const Gradients& from, int64_t begin,
              int64_t end) const {
    const auto one = [&](const F* rows, int64_t width, F* sums) {
      if (!rows || !sums) return;
      const int64_t count = (end - begin) * width;
      sums += begin * width;
      for (int64_t i = 0; i < count; ++i) sums[i] = first ? rows[i] : sums[i] + rows[i];
    };
    one(from.w, I_, to.w);
    one(from.u, H_, to.u);
    one(from.b, 1, to.b);
  }

  // Columns of dz become rows of activations. A strip of rows is summed first, row by row, which
  // brings it into the cache; column by column, most reads would miss.
  void transpose_dz(const Block& block, int64_t begin, int64_t end, const Scratch& scratch,
                    F* grad_b) const {
    const F* const dz = dz_ + block.first * GH_;
    const int64_t rows = end - begin;
    const int64_t bytes = products_.encoded_bytes(block.count);
    const bool as_is = sizeof(D) == sizeof(F) && bytes == block.count * int64_t(sizeof(F));
    const int64_t most = as_is ? kStrip : kBlock;
    std::fill_n(scratch.columns, rows, F(0));
    for (int64_t row = 0; row < block.count; row += most) {
      const int64_t some = std::min(most, block.count - row);
      const F* const from = dz + row * GH_;
      kernels_.add_rows(from + begin, GH_, some, rows, scratch.columns);
      for (int64_t first = begin; first < end; first += kColumns) {
        const int64_t count = std::min(kColumns, end - first);
        char* const to = scratch.transposed + (first - begin) * bytes;
        alignas(64) F transposed[kColumns * kBlock];
        kernels_.transpose(from + first, GH_, some, count,
                           as_is ? reinterpret_cast<F*>(to) + row : transposed,
                           as_is ? block.count : kBlock);
        for (int64_t i = 0; i < count && !as_is; ++i)
          products_.encode(transposed + i * kBlock, block.count, to + i * bytes);
      }
    }
    F* const sums = grad_b + begin;
    for (int64_t i = 0; i < rows; ++i)
      sums[i] = block.done > 0 ? sums[i] + scratch.columns[i] : scratch.columns[i];
  }

  // The rows of x of a block, which lie in the order [B,T].
  void find_x(const Block& block, const void** rows) const {
    const int64_t bytes = I_ * int64_t(a_.input.full_precision_x ? sizeof(F) : sizeof(D));
    for (int64_t at = block.first; at < block.first + block.count; ++at)
      *rows++ = static_cast<const char*>(a_.input.x) + (at % B_ * T_ + at / B_) * bytes;
  }
  // The h that each step starts from: y of the previous step, or the row's initial h.
  void find_before(const Block& block, const void** rows) const {
    const D* const first = sizeof(D) == sizeof(F) ? static_cast<const D*>(a_.h) : h_.data();
    for (int64_t at = block.first; at < block.first + block.count; ++at) {
      const int64_t before = at - B_;
      if (before >= 0)
        *rows++ = static_cast<const D*>(a_.y) + (before % B_ * T_ + before / B_) * H_;
      else
        *rows++ = a_.h ? static_cast<const void*>(first + at * H_) : zeros_.data();
    }
  }

  // to [rows, outputs] += transposed dz times the rows `right` [block, outputs], of F if `wide`;
  // the first block of a chain overwrites `to`.
  void multiply(const Block& block, bool wide, int64_t outputs, int64_t rows,
                const Scratch& scratch, F* to) const {
    MatrixSource right = kernels_.source({nullptr, wide}, outputs, block.count, 1, outputs);
    right.columns = scratch.right;
    products_.pack(right, scratch.matrix);
    products_.multiply(scratch.matrix, outputs, block.count, rows, scratch.transposed,
                       {to, outputs, block.done % kChain == 0 ? zeros_.data() : nullptr}, 0,
                       (outputs + products_.panel - 1) / products_.panel, {});
  }

  const TrainingKernels<D>& kernels_;
  const MatrixKernels& products_;
  const LayerBackward& a_;
  const int64_t B_, T_, H_, I_, GH_, K_, block_;
  const InputGradient<D>& input_;
  const F* dz_;
  Aligned<F> zeros_;
  Aligned<D> h_;       // the initial h, if D is not F
  CachedBuffer sums_;  // the gradients in F, if they are wanted in D
};

}  // namespace tsm
