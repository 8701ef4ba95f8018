// A few rows times a bfloat16 matrix packed for AMX, bit for bit as AMX computes them.
//
// A tile product has a long latency, which pays off only with many rows. Its result is specified
// down to the last bit. For every row and output, one chain of fused multiply-adds starts at 0 and
// takes the first inputs of a block's 16 pairs; a second chain takes the second inputs. The sum of
// both is added to the output. Rounding is to nearest even, and subnormal numbers count as 0 when
// read or written. Ordinary instructions can do the same.
#pragma once
#include "kernels/cpu/product/amx_tiles.h"
#include "kernels/cpu/product/matrix_source.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

// Sets the thread's floating-point mode to that of AMX until the end of the scope. Code that
// computes in this mode must not be inlined, because the compiler does not know that the arithmetic
// depends on it.
class AmxArithmetic {
 public:
  AmxArithmetic() : before_(_mm_getcsr()) {
    _mm_setcsr(0x9fc0);  // nearest even, subnormal numbers are 0, no exceptions
  }
  ~AmxArithmetic() { _mm_setcsr(before_); }
  AmxArithmetic(const AmxArithmetic&) = delete;
  AmxArithmetic& operator=(const AmxArithmetic&) = delete;

 private:
  unsigned before_;
};

// One call of `multiply`. Shape: the layout of the packed pairs.
template <class Shape>
struct AmxRows {
  static constexpr int kRows = 2;  // computed at once: 16 chains in registers

  const uint16_t* numbers;
  int64_t outputs, inputs;
  const char* x;
  int64_t x_stride;  // bytes
  float* out;
  int64_t stride;

  void run(int64_t rows, int64_t first, int64_t last) const {
    const AmxArithmetic arithmetic;
    const int64_t parts = (rows + kRows - 1) / kRows;  // of nearly the same size
    for (int64_t panel = first; panel < last; ++panel)
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t row = rows * part / parts;
        row_block<kRows>(rows * (part + 1) / parts - row, panel, row);
      }
  }

 private:
  using Sum = Floats::Native;

  template <int R>
  void row_block(int64_t rows, int64_t panel, int64_t row) const {
    if constexpr (R > 0) {
      if (rows < R) return row_block<R - 1>(rows, panel, row);
      switch (Shape::width(outputs, panel) / kFloatLanes) {
        case 1:
          return microkernel<R, 1>(panel, row);
        case 2:
          return microkernel<R, 2>(panel, row);
        case 3:
          return microkernel<R, 3>(panel, row);
        default:
          return microkernel<R, 4>(panel, row);
      }
    }
  }

  // R rows by a panel of W registers.
  template <int R, int W>
  [[gnu::noinline]] void microkernel(int64_t panel, int64_t row) const {
    constexpr int L = kFloatLanes;
    const uint16_t* w = numbers + Shape::panel_at(outputs, inputs, panel);
    const char* const from = x + row * x_stride;
    float* const to = out + row * stride + panel * Shape::kPanel;
    const int ragged = int(smaller(L, outputs - panel * Shape::kPanel - (W - 1) * L));
    Sum sums[R][W];
    unrolled<R>(TSM_BODY(r) {
      unrolled<W>(TSM_BODY(v) {
        sums[r][v] = load_lanes(to + r * stride + v * L, v == W - 1 ? ragged : L).v;
      });
    });
    const int64_t blocks = Shape::groups(inputs) / kAmxGroups;
    for (int64_t block = 0; block < blocks; ++block) {
      alignas(64) float factors[R][2][kAmxGroups];
      unrolled<R>(TSM_BODY(r) { widen(from + r * x_stride + block * 64, factors[r]); });
      Sum chains[2][R][W] = {};
      for (int k = 0; k < kAmxGroups; ++k, w += 2 * W * L) {
        unrolled<W>(TSM_BODY(v) {
          Pairs pairs;
          std::memcpy(&pairs, w + 2 * v * L, sizeof(pairs));
          const Floats even(Sum(pairs << 16)), odd(Sum(pairs & int32_t(0xffff0000)));
          unrolled<R>(TSM_BODY(r) {
            chains[0][r][v] =
                SimdFloat::fma(Floats(factors[r][0][k]), even, Floats(chains[0][r][v])).v;
            chains[1][r][v] =
                SimdFloat::fma(Floats(factors[r][1][k]), odd, Floats(chains[1][r][v])).v;
          });
        });
      }
      unrolled<R>(TSM_BODY(r) {
        unrolled<W>(TSM_BODY(v) { sums[r][v] += chains[0][r][v] + chains[1][r][v]; });
      });
    }
    unrolled<R>(TSM_BODY(r) {
      unrolled<W>(TSM_BODY(v) {
        store_lanes(Floats(sums[r][v]), to + r * stride + v * L, v == W - 1 ? ragged : L);
      });
    });
  }

  using Pairs = Floats::Bits;

  // Converts 16 pairs of activations to floats: the first of each pair to to[0], the second to
  // to[1].
  TSM_CELL static void widen(const char* from, float (*to)[kAmxGroups]) {
    Pairs pairs;
    std::memcpy(&pairs, from, sizeof(pairs));
    SimdFloat::store(Floats(Sum(pairs << 16)), to[0], kAmxGroups);
    SimdFloat::store(Floats(Sum(pairs & int32_t(0xffff0000))), to[1], kAmxGroups);
  }
};

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
