// The functions that the passes of CPU training use: those of an instruction set for one cell and
// one element type.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/bfloat16.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/train/isa_training.h"

namespace tsm {

// The type in which elements of type D are computed.
template <class D>
struct Arithmetic;
template <>
struct Arithmetic<float> {
  using F = float;
  static constexpr MatrixSource::Type kSource = MatrixSource::kFloat32;
};
template <>
struct Arithmetic<bfloat16> {
  using F = float;
  static constexpr MatrixSource::Type kSource = MatrixSource::kBFloat16;
};
template <>
struct Arithmetic<double> {
  using F = double;
  static constexpr MatrixSource::Type kSource = MatrixSource::kFloat64;
};

// An array of D, or of F if `wide`.
struct Elements {
  const void* data;
  bool wide;
};

// The functions that a pass calls.
template <class D>
struct TrainingKernels {
  using F = typename Arithmetic<D>::F;
  const CellTraining<F>& cell;
  const MatrixKernels& matrix;
  const IsaTraining& isa;

  // Converts n elements from D to F, and back.
  void widen(const D* from, int64_t n, F* to) const {
    if constexpr (sizeof(D) == sizeof(F))
      std::copy_n(from, n, to);
    else
      isa.widen(from, n, to);
  }
  void round(const F* from, int64_t n, D* to) const {
    if constexpr (sizeof(D) == sizeof(F))
      std::copy_n(from, n, to);
    else
      isa.round(from, n, to);
  }

  // to[j, i] = from[i, j]; strides in elements.
  void transpose(const F* from, int64_t stride, int64_t rows, int64_t columns, F* to,
                 int64_t to_stride) const {
    if constexpr (std::is_same_v<F, float>) {
      isa.transpose(from, stride, rows, columns, to, to_stride);
    } else {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) to[j * to_stride + i] = from[i * stride + j];
    }
  }
  // sums[j] += from[0, j], from[1, j], ..., one after the other.
  void add_rows(const F* from, int64_t stride, int64_t rows, int64_t columns, F* sums) const {
    if constexpr (std::is_same_v<F, float>) {
      isa.add_rows(from, stride, rows, columns, sums);
    } else {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) sums[j] += from[i * stride + j];
    }
  }

  // n numbers from position `at` on.
  void read(const Elements& from, int64_t at, int64_t n, F* to) const {
    if (from.wide)
      std::copy_n(static_cast<const F*>(from.data) + at, n, to);
    else
      widen(static_cast<const D*>(from.data) + at, n, to);
  }
  MatrixSource source(const Elements& w, int64_t outputs, int64_t inputs, int64_t row,
                      int64_t column) const {
    return {w.wide ? Arithmetic<F>::kSource : Arithmetic<D>::kSource,
            w.data,
            outputs,
            inputs,
            row,
            column,
            nullptr};
  }
};

}  // namespace tsm
