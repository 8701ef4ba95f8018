// Products with matrices of float64, for training in float64: simple, not fast.
#pragma once
#include "kernels/cpu/product/matrix_source.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

struct Float64 {
  using Element = double;
  using Out = double;
  typedef double Sum __attribute__((vector_size(16)));
  using Loaded = Sum;
  using Weights = Sum;
  using Factors = const double*;
  struct Extra {};
  static constexpr int kLanes = 2, kGroup = 1, kPad = 4, kUnroll = 4, kFactorBytes = 8;
  static constexpr int kRowHead = 0, kParts = 1, kVectors = kPanelVectors, kChains = 8;
  static constexpr int kRows = kTileRows, kOtherRows = kTileRows;
  static constexpr bool kRests = true, kFetches = false;

  TSM_CELL static Factors factors(const char* x) { return reinterpret_cast<const double*>(x); }
  TSM_CELL static Loaded load(const double* w) {
    Loaded loaded;
    std::memcpy(&loaded, w, sizeof(loaded));
    return loaded;
  }
  template <int>
  TSM_CELL static Weights part(Loaded w) {
    return w;
  }
  template <int I>
  TSM_CELL static Sum madd(Sum sum, Weights w, Factors x) {
    for (int lane = 0; lane < kLanes; ++lane)
      sum[lane] = Scalar<double>::fma(x[I], w[lane], sum[lane]);
    return sum;
  }
  TSM_CELL static Sum begin(const Extra&, int64_t, const double* base, int count) {
    Sum sum = {};
    std::memcpy(&sum, base, sizeof(double) * size_t(count));
    return sum;
  }
  TSM_CELL static void end(const Extra&, const char*, int64_t, Sum sum, const double*, double* out,
                           int count) {
    std::memcpy(out, &sum, sizeof(double) * size_t(count));
  }
};

struct Float64Matrix {
  using Shape = Layout<Float64>;

  static int64_t packed_bytes(int64_t outputs, int64_t inputs) {
    return Shape::numbers_bytes(outputs, inputs);
  }
  static void pack(const MatrixSource& w, void* packed) {
    const auto convert = [](const double* from, int64_t, double* to) {
      std::memcpy(to, from, kReadBlock * sizeof(double));
    };
    pack_numbers<Float64, double>(w, convert, static_cast<double*>(packed));
  }
  static int64_t encoded_bytes(int64_t inputs) {
    return round_up(Shape::groups(inputs) * Float64::kFactorBytes, 64);
  }
  static void encode(const void* x, int64_t inputs, void* encoded) {
    std::memcpy(encoded, x, size_t(inputs) * sizeof(double));
    std::memset(static_cast<double*>(encoded) + inputs, 0,
                size_t(encoded_bytes(inputs)) - size_t(inputs) * sizeof(double));
  }
  static void multiply(const void* packed, int64_t outputs, int64_t inputs, int64_t rows,
                       const void* x, const Accumulators& sums, int64_t first, int64_t last,
                       const Next& next) {
    const Product<Float64> product = {{},
                                      static_cast<const double*>(packed),
                                      outputs,
                                      inputs,
                                      Shape::groups(inputs),
                                      static_cast<const char*>(x),
                                      encoded_bytes(inputs),
                                      static_cast<double*>(sums.rows),
                                      sums.stride,
                                      static_cast<const double*>(sums.start)};
    product.run(rows, first, last, next);
  }
  static constexpr MatrixKernels kernels() {
    return {packed_bytes, pack, encoded_bytes, encode, Shape::kPanel, Shape::first, multiply};
  }
};

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
