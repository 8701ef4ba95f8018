// Products with matrices of 8-bit integers: one scale per output and one per row of activations.
// Sums are integers, so only the last multiply-add rounds.
//
// Packed form: scales float [outputs padded], starts int32 [outputs padded], then the panels.
// An encoded row: its scale in the first 4 of 64 bytes, then its integers.
#pragma once
#include "kernels/cpu/product/dot_int8.h"
#include "kernels/cpu/product/tile_neon.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

// The largest number of inputs whose sum of products always fits in 32 bits.
constexpr int64_t kInt8Inputs = 1 << 17;

// The bits of the largest magnitude seen. Compared as integers, infinity and NaN are the largest.
struct Magnitude {
  Ints bits = {};
  TSM_CELL void add(Floats x) {
    const Ints other = SimdFloat::bits(SimdFloat::abs(x));
    bits = other > bits ? other : bits;
  }
  TSM_CELL float value() const {
    int32_t largest = 0;
    for (int lane = 0; lane < SimdFloat::kLanes; ++lane)
      largest = bits[lane] > largest ? bits[lane] : largest;
    float x;
    std::memcpy(&x, &largest, 4);
    return x;
  }
};

// The scale (the value of the integer 1) for a row whose largest magnitude is `largest`; NaN if
// that is not finite.
TSM_CELL float scale_of(float largest) {
  return largest < __builtin_inff() ? largest / 127 : __builtin_nanf("");
}
TSM_CELL float divisor_of(float scale) { return scale > 0 ? scale : __builtin_inff(); }

// x / divisor rounded to nearest even, within [-127, 127] (a subnormal scale is coarse).
TSM_CELL Ints quantized(Floats x, float divisor) {
  const Floats limit(127.0f), magic(12582912.0f);  // 1.5 * 2^23: adding it rounds
  Floats q = x / Floats(divisor);
  q = SimdFloat::clip(q, -limit, limit);  // arbitrary for NaN: the scale is NaN then
  return SimdFloat::bits(q + magic) - SimdFloat::bits(magic);
}

struct Int8 : Dot {
  using Element = int8_t;
  using Loaded = Dot::Weights;
  using Out = float;
  using Sum = Ints;
  struct Extra {
    const float* scales;
    const int32_t* starts;
  };
  static constexpr int kLanes = SimdFloat::kLanes, kRowHead = 64, kParts = 1, kChains = 8;
  static constexpr bool kRests = false, kFetches = false;
#if defined(TSM_NEON_TILES) && defined(__ARM_FEATURE_DOTPROD)
  static constexpr int kRows = 6;
#else
  static constexpr int kRows =
      kLanes == 8 && kTileRows > 4 ? 4 : kTileRows;  // products take registers
#endif
  static constexpr int kVectors = kPanelVectors, kOtherRows = kRows;
  static constexpr int kFactorBytes = Dot::kGroup * int(sizeof(Dot::X));
#if defined(__AMX_INT8__)
  static constexpr int kPad = 16;
#else
  static constexpr int kPad = 4;
#endif

  template <int>
  TSM_CELL static Weights part(Loaded w) {
    return w;
  }
  TSM_CELL static Sum begin(const Extra& extra, int64_t output, const float*, int) {
    Ints sum = {};
    if (Dot::kOffset != 0) std::memcpy(&sum, extra.starts + output, sizeof(sum));
    return sum;
  }
  TSM_CELL static void end(const Extra& extra, const char* x, int64_t output, Sum sum,
                           const float* base, float* out, int count) {
    float scale;
    std::memcpy(&scale, x, 4);
    const Floats factor = Floats(scale) * SimdFloat::load(extra.scales + output, kLanes);
    const Floats product(__builtin_convertvector(sum, Floats::Native));
    store_lanes(SimdFloat::fma(factor, product, load_lanes(base, count)), out, count);
  }
};

#if defined(TSM_NEON_TILES) && defined(__ARM_FEATURE_DOTPROD)
// Prefetches 1 KB ahead, across the ends of panels. Two panels at a time are slower beyond L2.
template <>
struct RowTile<Int8> {
  static constexpr int kPanels = 1, L = Int8::kLanes, N = Int8::kVectors;
  static void run(const Int8::Extra& extra, int64_t at, const int8_t* w, const char* x,
                  int64_t groups, int64_t times, const float* from, float* to) {
    for (; times > 0; --times, at += N * L, from += N * L, to += N * L) {
      Ints sums[N] = {};
      for (int64_t g = 0; g < groups; g += 4, w += 4 * kGroupBytes) {
        const Int8::Factors four = Int8::factors(x + Int8::kRowHead + g * Int8::kFactorBytes);
        add<0>(w, four, sums);
        add<1>(w, four, sums);
        add<2>(w, four, sums);
        add<3>(w, four, sums);
      }
      for (int v = 0; v < N; ++v)
        Int8::end(extra, x, at + v * L, sums[v], from + v * L, to + v * L, L);
    }
  }

 private:
  static constexpr int kGroupBytes = N * L * Int8::kGroup;  // a cache line

  template <int I>
  TSM_CELL static void add(const int8_t* w, Int8::Factors four, Ints* sums) {
    w += I * kGroupBytes;
    __builtin_prefetch(w + 1024);
    unrolled<N>(TSM_BODY(v) {
      sums[v] = Int8::madd<I>(sums[v], Int8::load(w + v * L * Int8::kGroup), four);
    });
  }
};
#endif

struct Int8Matrix {
  using Shape = Layout<Int8>;
  static constexpr int L = SimdFloat::kLanes;

  static int64_t head_bytes(int64_t outputs) { return round_up(round_up(outputs, L) * 4, 64); }
  static int64_t packed_bytes(int64_t outputs, int64_t inputs) {
    if (inputs > kInt8Inputs) return -1;
    return 2 * head_bytes(outputs) + Shape::numbers_bytes(outputs, inputs);
  }
  static Int8::Extra extra(const void* packed, int64_t outputs) {
    const char* at = static_cast<const char*>(packed);
    return {reinterpret_cast<const float*>(at),
            reinterpret_cast<const int32_t*>(at + head_bytes(outputs))};
  }
  static const int8_t* numbers(const void* packed, int64_t outputs) {
    return static_cast<const int8_t*>(packed) + 2 * head_bytes(outputs);
  }

  static void pack(const MatrixSource& w, void* packed) {
    float* scales = static_cast<float*>(packed);
    int32_t* starts =
        reinterpret_cast<int32_t*>(static_cast<char*>(packed) + head_bytes(w.outputs));
    int8_t* to = const_cast<int8_t*>(numbers(packed, w.outputs));
    std::memset(packed, 0, size_t(2 * head_bytes(w.outputs)));
    MatrixSource source = w;
    if (w.type == MatrixSource::kInt8) {
      std::memcpy(scales, w.scales, size_t(w.outputs) * sizeof(float));
      source.scales = nullptr;  // keep the integers unscaled
    } else {
      for (int64_t i = 0; i < w.outputs; ++i) scales[i] = scale_of(largest(w, i));
    }
    const bool exact = w.type == MatrixSource::kInt8;
    const auto convert = [&](const float* from, int64_t i, int8_t* to) {
      using Narrow __attribute__((vector_size(L))) = int8_t;
      const float divisor = divisor_of(scales[i]);
      for (int k = 0; k < kReadBlock; k += L) {
        const Floats x = SimdFloat::load(from + k, L);
        const Ints q = exact ? __builtin_convertvector(x.v, Ints) : quantized(x, divisor);
        const Narrow narrow = __builtin_convertvector(q, Narrow);
        std::memcpy(to + k, &narrow, sizeof(narrow));
      }
    };
    pack_numbers<Int8, float>(source, convert, to);
    if (Dot::kOffset != 0) sum_weights(w.outputs, w.inputs, to, starts);
  }

  static int64_t encoded_bytes(int64_t inputs) {
    return Int8::kRowHead + round_up(Shape::groups(inputs) * Int8::kFactorBytes, 64);
  }
  static void encode(const void* x, int64_t inputs, void* encoded) {
    using Narrow __attribute__((vector_size(L * sizeof(Dot::X)))) = Dot::X;
    const float* from = static_cast<const float*>(x);
    char* to = static_cast<char*>(encoded);
    Magnitude magnitude;
    const int64_t whole = inputs / L * L;
    for (int64_t k = 0; k < whole; k += L) magnitude.add(SimdFloat::load(from + k, L));
    if (whole < inputs) magnitude.add(SimdFloat::load(from + whole, int(inputs - whole)));
    const float scale = scale_of(magnitude.value()), divisor = divisor_of(scale);
    std::memset(to, 0, Int8::kRowHead);
    std::memcpy(to, &scale, 4);
    to += Int8::kRowHead;
    const auto put = [&](int64_t k, int count) {
      const Ints q = quantized(SimdFloat::load(from + k, count), divisor);
      const Narrow narrow = __builtin_convertvector(q + Dot::kOffset, Narrow);
      std::memcpy(to + k * int64_t(sizeof(Dot::X)), &narrow, sizeof(narrow));
    };
    for (int64_t k = 0; k < whole; k += L) put(k, L);
    if (whole < inputs) put(whole, int(inputs - whole));
    const int64_t done = Int8::kRowHead + round_up(inputs, L) * int64_t(sizeof(Dot::X));
    if (done < encoded_bytes(inputs))
      std::memset(static_cast<char*>(encoded) + done, 0, size_t(encoded_bytes(inputs) - done));
  }
  static void multiply(const void* packed, int64_t outputs, int64_t inputs, int64_t rows,
                       const void* x, const Accumulators& sums, int64_t first, int64_t last,
                       const Next& next) {
    const Product<Int8> product = {extra(packed, outputs),
                                   numbers(packed, outputs),
                                   outputs,
                                   inputs,
                                   Shape::groups(inputs),
                                   static_cast<const char*>(x),
                                   encoded_bytes(inputs),
                                   static_cast<float*>(sums.rows),
                                   sums.stride,
                                   static_cast<const float*>(sums.start)};
    product.run(rows, first, last, next);
  }
  static constexpr MatrixKernels kernels() {
    return {packed_bytes, pack, encoded_bytes, encode, Shape::kPanel, Shape::first, multiply};
  }

 private:
  static float largest(const MatrixSource& w, int64_t i) {
    Magnitude magnitude;
    for (int64_t k = 0; k < w.inputs; k += kReadBlock) {
      alignas(64) float block[kReadBlock] = {};
      read(w, i, k, smaller(kReadBlock, w.inputs - k), block);
      for (int j = 0; j < kReadBlock; j += L) magnitude.add(SimdFloat::load(block + j, L));
    }
    return magnitude.value();
  }
  // Computed modulo 2^32, like the sums of products; only the total of the two has to fit.
  static void sum_weights(int64_t outputs, int64_t inputs, const int8_t* numbers, int32_t* starts) {
    for (int64_t panel = 0; panel < Shape::panels(outputs); ++panel) {
      const int8_t* from = numbers + Shape::panel_at(outputs, inputs, panel);
      const int64_t width = Shape::width(outputs, panel);
      int32_t* sums = starts + panel * Shape::kPanel;
      for (int64_t group = 0; group < Shape::groups(inputs); ++group)
        for (int64_t j = 0; j < width; ++j)
          for (int k = 0; k < Dot::kGroup; ++k)
            sums[j] = int32_t(uint32_t(sums[j]) -
                              uint32_t(Dot::kOffset * from[(group * width + j) * Dot::kGroup + k]));
    }
  }
};

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
