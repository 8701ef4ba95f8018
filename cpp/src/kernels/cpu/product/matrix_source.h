// Reads a MatrixSource of any type and strides, and packs it.
#pragma once
#include "kernels/cpu/product/matrix.h"
#include "kernels/cpu/product/transpose.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

TSM_CELL float widened(uint16_t bfloat16) {
  const uint32_t bits = uint32_t(bfloat16) << 16;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Rounds to nearest even; a NaN stays a NaN (core/bfloat16.h).
TSM_CELL uint16_t narrowed(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  const uint32_t nearest = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
  return uint16_t((u & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
}

// Column k, from output i on.
template <class T>
TSM_CELL const T* column(const MatrixSource& w, int64_t i, int64_t k) {
  return w.columns ? static_cast<const T*>(w.columns[k]) + i
                   : static_cast<const T*>(w.data) + i * w.row + k * w.column;
}

template <class F, class T, class Convert>
void read_row(const MatrixSource& w, int64_t i, int64_t k, int64_t count, F* to,
              const Convert& convert) {
  if (w.columns) {
    for (int64_t n = 0; n < count; ++n) to[n] = convert(*column<T>(w, i, k + n));
    return;
  }
  const T* from = column<T>(w, i, k);
  if (w.column == 1)
    for (int64_t n = 0; n < count; ++n) to[n] = convert(from[n]);
  else
    for (int64_t n = 0; n < count; ++n) to[n] = convert(from[n * w.column]);
}

// w[i, k .. k + count) as numbers of type F. int8 numbers are scaled only if the source has scales.
template <class F>
[[gnu::noinline]] void read(const MatrixSource& w, int64_t i, int64_t k, int64_t count, F* to) {
  switch (w.type) {
    case MatrixSource::kFloat32:
      return read_row<F, float>(w, i, k, count, to, [](float x) { return F(x); });
    case MatrixSource::kFloat64:
      return read_row<F, double>(w, i, k, count, to, [](double x) { return F(x); });
    case MatrixSource::kBFloat16:
      return read_row<F, uint16_t>(w, i, k, count, to, [](uint16_t x) { return F(widened(x)); });
    case MatrixSource::kInt8: {
      const float scale = w.scales ? w.scales[i] : 1.0f;
      return read_row<F, int8_t>(w, i, k, count, to, [=](int8_t x) { return F(scale * float(x)); });
    }
  }
}

constexpr int kReadBlock = 64;  // numbers read together: a few cache lines of a row

// Packs a group of inputs of `count` outputs, whose numbers are adjacent in one column of the
// source or, from `next` on, a second one. A pair is assembled in 32 bits, which compilers
// vectorise.
template <int kGroup, class Source, class Element, class Convert>
TSM_CELL void put_group(const Source* from, const Source* next, int64_t count,
                        const Convert& convert, Element* to) {
  if constexpr (kGroup == 1) {
    for (int64_t j = 0; j < count; ++j) to[j] = convert(from[j]);
  } else {
    static_assert(kGroup == 2 && sizeof(Element) == 2);
    for (int64_t j = 0; j < count; ++j) {
      const uint32_t pair = convert(from[j]) | uint32_t(convert(next[j])) << 16;
      std::memcpy(to + 2 * j, &pair, sizeof(pair));
    }
  }
}

constexpr int64_t kStripGroups = 16;  // packed together: their columns stay in L1

// Fills the panels from a source whose outputs are adjacent in memory (a transposed matrix), so
// that they already have the order of the panels. convert(number) returns the packed number.
// kGroup: 1 or 2. Columns that are anywhere in memory are prefetched one strip ahead.
template <class Kind, class Source, class Convert>
void pack_neighbours(const MatrixSource& w, const Convert& convert,
                     typename Kind::Element* numbers) {
  using Shape = Layout<Kind>;
  using Element = typename Kind::Element;
  constexpr int64_t kGroup = Kind::kGroup, kAhead = kStripGroups * kGroup;
  const int64_t groups = Shape::groups(w.inputs), whole = w.inputs / kGroup;
  for (int64_t strip = 0; strip < groups; strip += kStripGroups) {
    const int64_t end = smaller(strip + kStripGroups, groups);
    for (int64_t panel = 0; panel < Shape::panels(w.outputs); ++panel) {
      const int64_t width = Shape::width(w.outputs, panel), first = Shape::first(w.outputs, panel);
      const int64_t inside = smaller(width, w.outputs - first);
      Element* to = numbers + Shape::panel_at(w.outputs, w.inputs, panel) + strip * width * kGroup;
      for (int64_t group = strip; group < end; ++group, to += width * kGroup) {
        const int64_t k = group * kGroup;
        if (group >= whole || inside < width)
          std::memset(to, 0, size_t(width * kGroup) * sizeof(Element));
        if (group < whole) {
          put_group<kGroup>(column<Source>(w, first, k), column<Source>(w, first, k + kGroup - 1),
                            inside, convert, to);
        } else if (k < w.inputs) {  // half a pair
          const Source* const from = column<Source>(w, first, k);
          for (int64_t j = 0; j < inside; ++j) to[j * kGroup] = convert(from[j]);
        }
        for (int64_t i = 0; w.columns && i < kGroup && k + kAhead + i < w.inputs; ++i)
          for (int64_t j = 0; j < inside; j += 64 / int64_t(sizeof(Source)))
            __builtin_prefetch(column<Source>(w, first + j, k + kAhead + i));
      }
    }
  }
}

// Fills the panels from a source that has the kind's own element type and whose inputs are adjacent
// in memory, by transposing groups of four bytes. Returns false for any other source.
template <class Kind>
bool pack_groups(const MatrixSource& w, typename Kind::Element* numbers) {
  using Shape = Layout<Kind>;
  constexpr int64_t kGroup = Kind::kGroup;
  static_assert(kGroup * sizeof(typename Kind::Element) == sizeof(float));
  if (w.type != Kind::kSource || w.columns || w.column != 1 || w.row % kGroup != 0 ||
      w.inputs % kGroup != 0)
    return false;
  if (w.inputs == 0) return true;  // nothing to pack, and no memory for it
  const float* const from = static_cast<const float*>(w.data);
  for (int64_t panel = 0; panel < Shape::panels(w.outputs); ++panel) {
    const int64_t width = Shape::width(w.outputs, panel), first = Shape::first(w.outputs, panel);
    const int64_t inside = smaller(width, w.outputs - first), groups = w.inputs / kGroup;
    float* const to =
        reinterpret_cast<float*>(numbers + Shape::panel_at(w.outputs, w.inputs, panel));
    const int64_t whole = inside == width ? groups : 0;  // the rest is padded with zeros
    std::memset(to + whole * width, 0,
                size_t((Shape::groups(w.inputs) - whole) * width) * sizeof(float));
    transpose(from + first * (w.row / kGroup), w.row / kGroup, inside, groups, to, width);
  }
  return true;
}

// pack_neighbours for a bfloat16 matrix; returns false for any other source.
template <class Kind>
bool pack_neighbours_bfloat16(const MatrixSource& w, uint16_t* numbers) {
  if (w.row != 1) return false;
  if (w.type == MatrixSource::kFloat32)
    pack_neighbours<Kind, float>(w, [](float x) { return narrowed(x); }, numbers);
  else if (w.type == MatrixSource::kBFloat16)
    pack_neighbours<Kind, uint16_t>(w, [](uint16_t x) { return x; }, numbers);
  else
    return false;
  return true;
}

// Fills the panels. convert(from, i, to) converts kReadBlock numbers of output i to packed ones,
// which are then scattered over a part of the panel that stays in L1.
template <class Kind, class F, class Convert>
void pack_numbers(const MatrixSource& w, const Convert& convert, typename Kind::Element* numbers) {
  using Shape = Layout<Kind>;
  using Element = typename Kind::Element;
  constexpr int64_t kGroup = Kind::kGroup;
  const int64_t padded = Shape::groups(w.inputs) * kGroup;
  for (int64_t panel = 0; panel < Shape::panels(w.outputs); ++panel) {
    const int64_t width = Shape::width(w.outputs, panel), first = Shape::first(w.outputs, panel);
    Element* const to = numbers + Shape::panel_at(w.outputs, w.inputs, panel);
    for (int64_t begin = 0; begin < padded; begin += kReadBlock) {
      const int64_t groups = smaller(kReadBlock, padded - begin) / kGroup;
      const int64_t inside = smaller(kReadBlock, w.inputs - begin);  // may be 0 or less: padding
      for (int64_t j = 0; j < width; ++j) {
        alignas(64) F block[kReadBlock] = {};
        alignas(64) Element packed[kReadBlock] = {};
        if (first + j < w.outputs && inside > 0) {
          read(w, first + j, begin, inside, block);
          convert(block, first + j, packed);
        }
        Element* place = to + (begin / kGroup * width + j) * kGroup;
        for (int64_t group = 0; group < groups; ++group, place += width * kGroup)
          std::memcpy(place, packed + group * kGroup, kGroup * sizeof(Element));
      }
    }
  }
}

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
