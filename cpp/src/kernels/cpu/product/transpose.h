// Transposes a matrix of floats, or of other four-byte elements, one square of registers at a time.
// Included by units that are compiled once per instruction set: no STL.
#pragma once
#include "cells/simd.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

// L rows of L floats. Rows i and i + L/2 are interleaved lane by lane, which gives two rows.
// Repeating this log2(L) times puts every number in its place.
template <int L>
struct Square {
  using Row = Floats::Native;
  typedef int32_t Lanes __attribute__((vector_size(sizeof(Row))));

  static void transpose(const float* from, int64_t stride, float* to, int64_t to_stride) {
    Row rows[L], zipped[L];
    for (int i = 0; i < L; ++i) rows[i] = SimdFloat::load(from + i * stride, L).v;
    for (int done = 1; done < L; done *= 2) {
      for (int i = 0; i < L / 2; ++i) {
        zipped[2 * i] = zip(rows[i], rows[i + L / 2], 0);
        zipped[2 * i + 1] = zip(rows[i], rows[i + L / 2], L / 2);
      }
      for (int i = 0; i < L; ++i) rows[i] = zipped[i];
    }
    for (int i = 0; i < L; ++i) SimdFloat::store(Floats(rows[i]), to + i * to_stride, L);
  }

 private:
  // a[first], b[first], a[first + 1], b[first + 1], ...
  TSM_CELL static Row zip(Row a, Row b, int first) {
#if defined(__clang__)  // compiles to one shuffle
    Row both;
    for (int i = 0; i < L; ++i) both[i] = i % 2 ? b[first + i / 2] : a[first + i / 2];
    return both;
#else
    Lanes lanes;
    for (int i = 0; i < L; ++i) lanes[i] = first + i / 2 + (i % 2) * L;
    return __builtin_shuffle(a, b, lanes);
#endif
  }
};

// to[j, i] = from[i, j]
inline void transpose(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to,
                      int64_t to_stride) {
  constexpr int L = SimdFloat::kLanes;
  const int64_t whole_rows = rows / L * L, whole_columns = columns / L * L;
  for (int64_t i = 0; i < whole_rows; i += L)
    for (int64_t j = 0; j < whole_columns; j += L)
      Square<L>::transpose(from + i * stride + j, stride, to + j * to_stride + i, to_stride);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j)
      std::memcpy(to + j * to_stride + i, from + i * stride + j, sizeof(float));
}

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
