// A matrix packed for an instruction set, multiplied on the model's threads.
//
// Training has a PackedMatrix and a time loop of its own (kernels/cpu/train/time_loop.h). Both use
// the same product kernels (kernels/cpu/product); the two classes themselves share only five
// one-line functions. Streaming packs U and W once, next to each other, reads them in alternating
// directions and prefetches the next matrix; training packs the weights in each call on all
// threads. Here a step has one row per active stream, and threads split its outputs. In training a
// thread takes rows through all steps without a barrier.
#pragma once
#include <cstdint>

#include "core/aligned.h"
#include "core/error.h"
#include "core/split.h"
#include "kernels/cpu/isa.h"

namespace tsm {

// Bytes of the packed matrix. 8-bit products are summed in 32 bits, which limits the number of
// inputs.
inline int64_t packed_bytes(const MatrixKernels& kernels, const MatrixSource& source) {
  const int64_t bytes = kernels.packed_bytes(source.outputs, source.inputs);
  require(bytes >= 0,
          "a matrix has " + std::to_string(source.inputs) +
              " inputs, too many for int8; accepted: float32, bfloat16",
          ErrorKind::kBadFile);
  return bytes;
}

class Matrix {
 public:
  Matrix() = default;
  Matrix(const MatrixKernels& kernels, const MatrixSource& source)
      : Matrix(kernels, source, nullptr) {}
  // `memory`: packed_bytes bytes at a 64-byte boundary that outlive the matrix. Null: the matrix
  // allocates its own.
  Matrix(const MatrixKernels& kernels, const MatrixSource& source, uint8_t* memory)
      : kernels_(&kernels),
        outputs_(source.outputs),
        inputs_(source.inputs),
        encoded_bytes_(kernels.encoded_bytes(source.inputs)),
        bytes_(tsm::packed_bytes(kernels, source)),
        own_(memory ? 0 : bytes_),
        packed_(memory ? memory : own_.data()) {
    if (bytes_ == 0) return;
    kernels.pack(source, memory ? memory : own_.data());
    output_bytes_ = bytes_ / kernels.first(outputs_, panels());
  }

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  int64_t bytes() const { return bytes_; }
  int64_t panels() const { return (outputs_ + kernels_->panel - 1) / kernels_->panel; }

  // Rows of activations as `multiply` reads them. Matrices of the same kind and number of inputs
  // use the same encoding.
  int64_t encoded_bytes() const { return encoded_bytes_; }
  void encode(const float* x, uint8_t* encoded) const { kernels_->encode(x, inputs_, encoded); }

  // sums[r, :] += x[r, :] w^T. Threads split the outputs, never a sum.
  void multiply(ThreadPool& pool, int64_t rows, const uint8_t* x, const Accumulators& sums) const {
    if (rows == 0) return;
    split(pool, panels(), outputs_ * inputs_ * rows,
          [&](int64_t first, int64_t last) { multiply_panels(rows, x, sums, first, last); });
  }
  // The same for the outputs of panels [first, last), on the calling thread.
  void multiply_panels(int64_t rows, const uint8_t* x, const Accumulators& sums, int64_t first,
                       int64_t last, const Next& next = {}) const {
    kernels_->multiply(packed_, outputs_, inputs_, rows, x, sums, first, last, next);
  }
  // The memory range of panels [first, last), approximately with int8.
  Next place(int64_t first, int64_t last) const {
    const auto at = [&](int64_t panel) { return output_bytes_ * kernels_->first(outputs_, panel); };
    return {packed_ + at(first), at(last) - at(first)};
  }

 private:
  const MatrixKernels* kernels_ = nullptr;
  int64_t outputs_ = 0, inputs_ = 0, encoded_bytes_ = 0, bytes_ = 0, output_bytes_ = 0;
  Aligned<uint8_t> own_;
  const uint8_t* packed_ = nullptr;
};

// Calls f(first, last, next) for parts of the panels [begin, end), upwards or downwards. A panel
// has `bytes` bytes. With alternating directions, the panels read last are still in the cache.
// next: the first panel of the following part, -1 after the last one.
template <class Function>
void for_panels(int64_t begin, int64_t end, int64_t bytes, bool down, const Function& f) {
#if defined(__aarch64__)  // beyond L2, one long run upwards is faster on a Neoverse-N1
  if (bytes * (end - begin) > kNearBytes) return f(begin, end, -1);
#endif
  constexpr int64_t kBytes = 1 << 18;  // read per iteration
  const int64_t each = std::max<int64_t>(1, kBytes / bytes);
  const int64_t blocks = (end - begin + each - 1) / each;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first = begin + (down ? blocks - 1 - i : i) * each;
    f(first, std::min(first + each, end), i + 1 == blocks ? -1 : first + (down ? -each : each));
  }
}

// A matrix and the rows it is multiplied with.
struct Term {
  const Matrix* matrix;
  const uint8_t* x;
};

// sums += the products of all terms. The matrices of all terms have the same outputs, and every
// output adds the terms in order. Threads split the outputs. The terms are read part by part,
// upwards or downwards.
inline void multiply_sweep(ThreadPool& pool, const Term* terms, int64_t count, int64_t rows,
                           const Accumulators& sums, bool down) {
  if (rows == 0 || count == 0) return;
  int64_t bytes = 0, inputs = 0;
  for (int64_t i = 0; i < count; ++i) {
    bytes += terms[i].matrix->bytes();
    inputs += terms[i].matrix->inputs();
  }
  const int64_t panels = terms[0].matrix->panels(), outputs = terms[0].matrix->outputs();
  const Accumulators going_on = {sums.rows, sums.stride};  // after the first term
  split(pool, panels, outputs * inputs * rows, [&](int64_t begin, int64_t end) {
    for_panels(begin, end, bytes / panels, down, [&](int64_t first, int64_t last, int64_t next) {
      for (int64_t i = 0; i < count; ++i) {
        const bool more = i + 1 < count;  // otherwise the next panel of the first term follows
        const int64_t panel = more ? first : next;
        terms[i].matrix->multiply_panels(
            rows, terms[i].x, i == 0 ? sums : going_on, first, last,
            panel < 0 ? Next() : terms[more ? i + 1 : 0].matrix->place(panel, panel + 1));
      }
    });
  });
}

}  // namespace tsm
