// The product inside the recurrence, out += x w for a few rows, with w packed once a chunk.
//
// Each element of `out` is one chain of multiply-adds in the order of k, whatever the number of
// rows and columns: the same bits for any batch.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cells/simd.h"

namespace tsm {

// Rows taken together, and registers of columns beside each other: their product stays in
// registers.
constexpr int kBlockRows = 8;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kBlockVectors = 2;
#else
constexpr int kBlockVectors = 1;  // 16 registers
#endif

// A matrix w [n,m] in panels of a tile's width, each dense, so that a product reads memory in one
// sweep.
template <class M, class F>
class Panels {
 public:
  static constexpr int L = M::kLanes, kWidth = L * kBlockVectors;

  template <class Element>  // element(k, j) is w[k,j]
  Panels(int64_t n, int64_t m, const Element& element) : n_(n), m_(m), data_(tiles() * n * kWidth) {
    for (int64_t tile = 0; tile < tiles(); ++tile)
      for (int64_t k = 0; k < n; ++k)
        for (int64_t c = 0; c < std::min<int64_t>(kWidth, m - tile * kWidth); ++c)
          data_[(tile * n + k) * kWidth + c] = element(k, tile * kWidth + c);
  }

  // out[r,:] += x[r,:] w  for r < rows;  x [rows,n], out [rows,m].
  void accumulate(int64_t rows, const F* x, F* out) const {
    while (rows >= kBlockRows) block<kBlockRows>(rows, x, out);
    while (rows >= 4) block<4>(rows, x, out);
    while (rows >= 1) block<1>(rows, x, out);
  }

 private:
  int64_t tiles() const { return (m_ + kWidth - 1) / kWidth; }

  template <int R>
  void block(int64_t& rows, const F*& x, F*& out) const {
    for (int64_t tile = 0; tile < tiles(); ++tile) multiply<R>(tile, x, out);
    rows -= R;
    x += R * n_;
    out += R * m_;
  }

  template <int R>
  void multiply(int64_t tile, const F* x, F* out) const {
    using V = typename M::V;
    const F* panel = data_.data() + tile * n_ * kWidth;
    out += tile * kWidth;
    int count[kBlockVectors];  // lanes of each register that are inside the matrix
    for (int c = 0; c < kBlockVectors; ++c)
      count[c] = int(std::clamp<int64_t>(m_ - tile * kWidth - c * L, 0, L));
    V sum[R][kBlockVectors];
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < kBlockVectors; ++c) sum[r][c] = M::load(out + r * m_ + c * L, count[c]);
    for (int64_t k = 0; k < n_; ++k) {
      V column[kBlockVectors];
      for (int c = 0; c < kBlockVectors; ++c) column[c] = M::load(panel + k * kWidth + c * L, L);
      for (int r = 0; r < R; ++r) {
        const V factor(x[r * n_ + k]);
        for (int c = 0; c < kBlockVectors; ++c) sum[r][c] = M::fma(factor, column[c], sum[r][c]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < kBlockVectors; ++c) M::store(sum[r][c], out + r * m_ + c * L, count[c]);
  }

  int64_t n_, m_;
  std::vector<F> data_;
};

}  // namespace tsm
