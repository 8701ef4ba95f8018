// Products with matrices of float32 and of bfloat16, both summed in float.
#pragma once
#include <type_traits>

#include "kernels/cpu/product/matrix_source.h"
#include "kernels/cpu/product/tile_avx512.h"
#include "kernels/cpu/product/tile_neon.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

// Four activations of a row, each to be multiplied with a register of weights.
struct FloatFactors {
#if defined(__ARM_NEON) && !defined(TSM_GENERIC)
  float32x4_t x;
  TSM_CELL static FloatFactors at(const char* x) {
    return {vld1q_f32(reinterpret_cast<const float*>(x))};
  }
  template <int I>
  TSM_CELL Floats::Native madd(Floats::Native sum, Floats::Native w) const {
    return Floats::Native(vfmaq_laneq_f32(sum, w, x, I));
  }
#else
  const float* x;
  TSM_CELL static FloatFactors at(const char* x) { return {reinterpret_cast<const float*>(x)}; }
  template <int I>
  TSM_CELL Floats::Native madd(Floats::Native sum, Floats::Native w) const {
    return SimdFloat::fma(Floats(x[I]), Floats(w), Floats(sum)).v;
  }
#endif
};

#if defined(__AVX512F__)
// The same with one load instead of four, for a single row: its product is bound by loads, and the
// shuffles that broadcast the four values are free.
struct LoadedFactors {
  Floats::Native x;
  TSM_CELL static LoadedFactors at(const char* x) {
    const __m128 four = _mm_loadu_ps(reinterpret_cast<const float*>(x));
    return {Floats::Native(_mm512_maskz_broadcast_f32x4(0xffff, four))};
  }
  template <int I>
  TSM_CELL Floats::Native madd(Floats::Native sum, Floats::Native w) const {
    const Floats::Native one = _mm512_maskz_permute_ps(0xffff, x, I * 0x55);
    return SimdFloat::fma(Floats(one), Floats(w), Floats(sum)).v;
  }
};
#endif

struct FloatSums {
  using Out = float;
  using Sum = Floats::Native;  // not Floats: gcc keeps arrays of bare vectors in registers
  using Factors = FloatFactors;
  struct Extra {};
  static constexpr int kLanes = SimdFloat::kLanes, kRowHead = 0;
  static constexpr bool kRests = true, kFetches = kFloatLanes == 16;  // measured only there

  TSM_CELL static Factors factors(const char* x) { return Factors::at(x); }
  template <int I, class Factors>
  TSM_CELL static Sum madd(Sum sum, Floats::Native w, const Factors& x) {
    return x.template madd<I>(sum, w);
  }
  TSM_CELL static Sum begin(const Extra&, int64_t, const float* base, int count) {
    return load_lanes(base, count).v;
  }
  TSM_CELL static void end(const Extra&, const char*, int64_t, Sum sum, const float*, float* out,
                           int count) {
    store_lanes(Floats(sum), out, count);
  }
};

struct Float32 : FloatSums {
  using Element = float;
  using Loaded = Floats::Native;
  using Weights = Floats::Native;
  static constexpr int kGroup = 1, kPad = 4, kUnroll = 4, kParts = 1, kFactorBytes = 4;
  static constexpr int kChains = kNearChains;
#if defined(__AVX512F__) && !defined(TSM_SMALL_TILES)
  static constexpr int kVectors = 3, kRows = 9, kOtherRows = kTileRows;
#elif defined(TSM_NEON_TILES)
  static constexpr int kVectors = 4, kRows = 6, kOtherRows = 6;
#else
  static constexpr int kVectors = kPanelVectors, kRows = kTileRows, kOtherRows = kTileRows;
#endif
  static constexpr MatrixSource::Type kSource = MatrixSource::kFloat32;

  TSM_CELL static Loaded load(const float* w) { return SimdFloat::load(w, kLanes).v; }
  template <int>
  TSM_CELL static Weights part(Loaded w) {
    return w;
  }
  static void convert(const float* from, int64_t, float* to) {
    std::memcpy(to, from, kReadBlock * sizeof(float));
  }
  static float encoded(float x) { return x; }
  static bool packs_neighbours(const MatrixSource& w, float* packed) {
    if (w.row != 1 || w.type != kSource) return false;
    pack_neighbours<Float32, float>(w, encoded, packed);
    return true;
  }
};

// Two neighbouring inputs share 32 bits, the first in the lower half; a shift and a mask (NEON:
// interleaving with zeros) turn them into floats.
struct BFloat16 : FloatSums {
  using Element = uint16_t;
  using Loaded = Floats::Bits;
  using Weights = Floats::Native;
  static constexpr int kGroup = 2, kPad = 2, kUnroll = 2, kParts = 2, kFactorBytes = 8;
  static constexpr int kVectors = kPanelVectors;
  static constexpr int kRows = kTileRows > 4 ? kTileRows - 1 : kTileRows;  // parts take registers
  static constexpr int kOtherRows = kRows;
  static constexpr int kChains = 8;
  static constexpr MatrixSource::Type kSource = MatrixSource::kBFloat16;

  TSM_CELL static Loaded load(const uint16_t* w) {
    Loaded pairs;
    std::memcpy(&pairs, w, sizeof(pairs));
    return pairs;
  }
  template <int Part>
  TSM_CELL static Weights part(Loaded pairs) {
#if defined(__ARM_NEON) && !defined(TSM_GENERIC)  // shifts have only one of the two pipes
    const uint16x8_t zero = vdupq_n_u16(0), both = uint16x8_t(pairs);
    return Weights(Part == 0 ? vtrn1q_u16(zero, both) : vtrn2q_u16(zero, both));
#else
    return Weights(Part == 0 ? pairs << 16 : pairs & int32_t(0xffff0000));
#endif
  }
  static void convert(const float* from, int64_t, uint16_t* to) {
    for (int k = 0; k < kReadBlock; ++k) to[k] = narrowed(from[k]);
  }
  static float encoded(float x) { return widened(narrowed(x)); }
  static bool packs_neighbours(const MatrixSource& w, uint16_t* packed) {
    return pack_neighbours_bfloat16<BFloat16>(w, packed);
  }
};

#if defined(__AVX512F__)
template <>
struct FactorsOf<Float32, 1> {
  using Type = LoadedFactors;
  TSM_CELL static Type at(const char* x) { return Type::at(x); }
};
template <>
struct FactorsOf<BFloat16, 1> : FactorsOf<Float32, 1> {};
#endif

#if defined(TSM_NEON_TILES)
TSM_CELL void widen(const uint16_t* from, int64_t width, int64_t pairs, float* to) {
  constexpr int L = BFloat16::kLanes;
  for (int64_t pair = 0; pair < pairs; ++pair, to += 2 * width)
    for (int64_t j = 0; j < width; j += L, from += 2 * L) {
      const BFloat16::Loaded both = BFloat16::load(from);
      SimdFloat::store(BFloat16::part<0>(both), to + j, L);
      SimdFloat::store(BFloat16::part<1>(both), to + width + j, L);
    }
}
// Many rows: a part of a panel becomes float32 once for all of them, which gives the same sums.
void multiply_widened(const Product<BFloat16>& p, int64_t rows, int64_t first, int64_t last) {
  using Shape = Layout<BFloat16>;
  constexpr int64_t kInputs = 512;  // 32 KB
  alignas(64) float wide[kInputs * Shape::kPanel];
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t at = Shape::first(p.outputs, panel), width = Shape::width(p.outputs, panel);
    for (int64_t input = 0; input < 2 * p.groups; input += kInputs) {
      const int64_t inputs = smaller(kInputs, 2 * p.groups - input);
      const uint16_t* const from = p.numbers + at * p.groups * BFloat16::kGroup + input * width;
      if (width == Shape::kPanel)
        widen(from, Shape::kPanel, inputs / 2, wide);
      else
        widen(from, width, inputs / 2, wide);
      const Product<Float32> product = {{},
                                        wide,
                                        smaller(width, p.outputs - at),
                                        inputs,
                                        inputs,
                                        p.x + input * int64_t(sizeof(float)),
                                        p.x_stride,
                                        p.out + at,
                                        p.stride,
                                        p.start && input == 0 ? p.start + at : nullptr};
      product.run(rows, 0, 1, {});
    }
  }
}
#endif

template <class Kind>
struct FloatMatrix {
  using Element = typename Kind::Element;
  using Shape = Layout<Kind>;

  static int64_t packed_bytes(int64_t outputs, int64_t inputs) {
    return Shape::numbers_bytes(outputs, inputs);
  }
  static void pack(const MatrixSource& w, void* packed) {
    if (Kind::packs_neighbours(w, static_cast<Element*>(packed))) return;
    if (pack_groups<Kind>(w, static_cast<Element*>(packed))) return;
    pack_numbers<Kind, float>(w, Kind::convert, static_cast<Element*>(packed));
  }
  static int64_t encoded_bytes(int64_t inputs) {
    return round_up(Shape::groups(inputs) * Kind::kFactorBytes, 64);
  }
  static void encode(const void* x, int64_t inputs, void* encoded) {
    const float* from = static_cast<const float*>(x);
    float* to = static_cast<float*>(encoded);
    if constexpr (Kind::kGroup == 1)
      std::memcpy(to, from, size_t(inputs) * 4);
    else
      for (int64_t k = 0; k < inputs; ++k) to[k] = Kind::encoded(from[k]);
    for (int64_t k = inputs; k < encoded_bytes(inputs) / 4; ++k) to[k] = 0;
  }
  static void multiply(const void* packed, int64_t outputs, int64_t inputs, int64_t rows,
                       const void* x, const Accumulators& sums, int64_t first, int64_t last,
                       const Next& next) {
    const Product<Kind> product = {{},
                                   static_cast<const Element*>(packed),
                                   outputs,
                                   inputs,
                                   Shape::groups(inputs),
                                   static_cast<const char*>(x),
                                   encoded_bytes(inputs),
                                   static_cast<float*>(sums.rows),
                                   sums.stride,
                                   static_cast<const float*>(sums.start)};
#if defined(TSM_NEON_TILES)
    if constexpr (std::is_same_v<Kind, BFloat16>)
      if (rows > Kind::kOtherRows && product.groups > 0)
        return multiply_widened(product, rows, first, last);
#endif
    product.run(rows, first, last, next);
  }
  static constexpr MatrixKernels kernels() {
    return {packed_bytes, pack, encoded_bytes, encode, Shape::kPanel, Shape::first, multiply};
  }
};

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
