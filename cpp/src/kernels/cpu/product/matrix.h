// Products with a packed matrix, as a template over the kind of its numbers.
//
// Packed form: outputs are split into panels of kVectors registers of L outputs each; the last
// panel is only as wide as needed, or the last panels are one register wider (Layout). In a panel,
// inputs are split into groups of kGroup, padded with zeros to a multiple of kPad groups. In a
// group, the kGroup numbers of each output are adjacent:
//
//   panel [groups][width][kGroup]
//
// So one register of numbers is multiplied with one group of a row's activations, and a product
// reads memory sequentially. Each output is one chain of multiply-adds in the order of its inputs,
// whatever else is computed at the same time.
#pragma once

#include <cstdint>
#include <cstring>

#include "cells/simd.h"
#include "kernels/cpu/isa.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
// 32 bits: a division of 64 bits takes twice as long, and tiles wait for it.
constexpr int64_t quotient(int64_t a, int64_t b) { return int64_t(uint32_t(a) / uint32_t(b)); }
constexpr int larger(int a, int b) { return a > b ? a : b; }

// Loads and stores the first `count` lanes. Without masks, partial registers go through a separate
// function, so that sums stay in registers if it is not called.
#if defined(__AVX512F__)
#define TSM_PART TSM_CELL
#else
#define TSM_PART [[gnu::noinline]]
#endif
TSM_PART Floats load_part(const float* from, int count) { return SimdFloat::load(from, count); }
TSM_PART void store_part(Floats x, float* to, int count) { SimdFloat::store(x, to, count); }
#undef TSM_PART
TSM_CELL Floats load_lanes(const float* from, int count) {
  return count == kFloatLanes ? SimdFloat::load(from, kFloatLanes) : load_part(from, count);
}
TSM_CELL void store_lanes(Floats x, float* to, int count) {
  if (count == kFloatLanes)
    SimdFloat::store(x, to, kFloatLanes);
  else
    store_part(x, to, count);
}

// Calls f(0), ..., f(N - 1), unrolled: loops over registers must be unrolled before the compiler
// assigns registers.
template <int N, int I = 0, class Function>
TSM_CELL void unrolled(const Function& f) {
  if constexpr (I < N) {
    f(I);
    unrolled<N, I + 1>(f);
  }
}
#define TSM_BODY(i) [&](int i) __attribute__((always_inline))

// Register tiles: the maximum number of rows, the width of a panel, and how many accumulators keep
// up with L2 and with memory beyond it. kFarPartBytes: how much of a panel is multiplied with all
// rows before the next part, if the matrix is not in L2 (with panels of three registers, three
// times as much). kNearPartBytes: the same if it is in L2, where larger parts save loads and stores
// of sums.
#if defined(TSM_SMALL_TILES)  // with sanitizers, larger tiles take minutes to compile
constexpr int kTileRows = 2, kPanelVectors = 2, kNearChains = 8, kFarChains = 2;
#elif defined(__AVX512F__)
constexpr int kTileRows = 6, kPanelVectors = 4, kNearChains = 16, kFarChains = 4;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kTileRows = 6, kPanelVectors = 2, kNearChains = 8, kFarChains = 4;
#elif defined(__ARM_NEON) && !defined(TSM_GENERIC)
constexpr int kTileRows = 4, kPanelVectors = 4, kNearChains = 8, kFarChains = 8;
#else
constexpr int kTileRows = 4, kPanelVectors = 2, kNearChains = 8, kFarChains = 8;
#endif
#if defined(__AVX512F__)
constexpr int64_t kFarPartBytes = 1 << 15, kNearPartBytes = 1 << 18;
#elif defined(__ARM_NEON)  // 64 KB of L1
constexpr int64_t kFarPartBytes = 1 << 15, kNearPartBytes = 1 << 15;
#else
constexpr int64_t kFarPartBytes = 1 << 14, kNearPartBytes = 1 << 14;
#endif

// Shape of a packed matrix. A Kind has
//   Element, Out, Sum   types of a packed number, of an output, and a register of sums
//   kLanes, kGroup, kPad, kUnroll, kParts, kFactorBytes, kRowHead
//   kVectors            registers of a panel
//   kRows, kOtherRows   the maximum number of rows in a tile of a whole panel, and of any other
//   kChains             accumulators that hide the latency of a multiply-add
//   Loaded, Factors     what `load` and `factors` fetch for one register and for kUnroll groups
//   Weights             one of the kParts into which `part` splits a loaded register
//   Extra               what else a product needs (the scales of int8)
//   kRests              whether sums may be stored in `out` between parts
//   kFetches            whether products of many rows prefetch what comes next
//   madd<I>             sum + weights * activations; I counts the groups and their parts
//   begin, end          the initial sums, and the update of `out`; `base` points to the initial
//                       values, in `out` or in the product's `start`
template <class Kind>
struct Layout {
  using Element = typename Kind::Element;
  static constexpr int kVectors = Kind::kVectors, kPanel = Kind::kLanes * kVectors;

  static constexpr int64_t groups(int64_t inputs) {
    return round_up((inputs + Kind::kGroup - 1) / Kind::kGroup, Kind::kPad);
  }
  static constexpr int64_t panels(int64_t outputs) { return (outputs + kPanel - 1) / kPanel; }
  // The first output of a panel, and its width. One or two registers that are left over would make
  // a slow tile. If panels have three registers, the panels before get one more each, and the last
  // panel is empty (with 1, 2 and 5 registers in all there are too few panels: the last is narrow).
  static constexpr int64_t first(int64_t outputs, int64_t panel) {
    if (kVectors != 3) return smaller(panel * kPanel, round_up(outputs, Kind::kLanes));
    const int64_t vectors = (outputs + Kind::kLanes - 1) / Kind::kLanes, left = vectors % kVectors;
    const int64_t wide = vectors >= 4 * left ? left : 0;
    const int64_t whole = (vectors - 4 * wide + kVectors - 1) / kVectors;
    const int64_t at = kVectors * panel + (panel > whole ? panel - whole : 0);
    return smaller(at, vectors) * Kind::kLanes;
  }
  static constexpr int64_t width(int64_t outputs, int64_t panel) {
    return first(outputs, panel + 1) - first(outputs, panel);
  }
  // The offset of a panel in elements.
  static constexpr int64_t panel_at(int64_t outputs, int64_t inputs, int64_t panel) {
    return first(outputs, panel) * groups(inputs) * Kind::kGroup;
  }
  static constexpr int64_t numbers_bytes(int64_t outputs, int64_t inputs) {
    return round_up(
        round_up(outputs, Kind::kLanes) * groups(inputs) * Kind::kGroup * int64_t(sizeof(Element)),
        64);
  }
  static constexpr bool is_far(int64_t outputs, int64_t inputs) {
    return numbers_bytes(outputs, inputs) > kNearBytes;
  }
};

// How the activations of R rows are loaded: with Kind::factors, unless there is a faster way for
// that many.
template <class Kind, int R>
struct FactorsOf {
  using Type = typename Kind::Factors;
  TSM_CELL static Type at(const char* x) { return Kind::factors(x); }
};

// Multiplies R rows with one panel of W registers, in a faster loop than the compiler's, if there
// is one. `groups` is a multiple of four; from_next and to_next count numbers, x_next bytes. For
// every four groups, `lines` cache lines from `ahead` on are prefetched; in the course of the loop,
// also the sums of `rows` rows from `below` on, which are as far apart as those of `to`.
//   run(w, x, x_next, groups, from, from_next, to, to_next, ahead, lines, below, rows)
template <class Kind, int R, int W>
struct Tile {
  static constexpr bool kExists = false;
};

// The same for sums that are not of type Out: `sums` are those of R rows, one after the other.
//   run(w, x, x_next, groups, sums, ahead, lines)
template <class Kind, int R, int W>
struct SumTile {
  static constexpr bool kExists = false;
};

// Multiplies one row with kPanels whole panels at a time, `times` times; 0: there is no such loop.
//   run(extra, at, w, x, groups, times, from, to)       `at`: the first output
template <class Kind>
struct RowTile {
  static constexpr int kPanels = 0;
};

// Copies the start values of the outputs [begin, end) into all rows.
template <class Out>
void put_start(const Accumulators& sums, int64_t rows, int64_t begin, int64_t end) {
  if (!sums.start || begin >= end) return;
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(static_cast<Out*>(sums.rows) + r * sums.stride + begin,
                static_cast<const Out*>(sums.start) + begin, size_t(end - begin) * sizeof(Out));
}

// One call of `multiply`.
template <class Kind>
struct Product {
  using Element = typename Kind::Element;
  using Out = typename Kind::Out;
  using Sum = typename Kind::Sum;
  using Shape = Layout<Kind>;
  static constexpr int L = Kind::kLanes, N = Kind::kVectors;

  typename Kind::Extra extra;
  const Element* numbers;
  int64_t outputs, inputs, groups;
  const char* x;
  int64_t x_stride;  // bytes
  Out* out;
  int64_t stride;
  const Out* start;  // or null

  void run(int64_t rows, int64_t first, int64_t last, const Next& next) const {
    if (groups == 0)
      return put_start<Out>({out, stride, start}, rows, Shape::first(outputs, first),
                            smaller(Shape::first(outputs, last), outputs));
    if (rows <= Kind::kOtherRows) return small_batch<Kind::kOtherRows>(rows, first, last);
    // A matrix of exactly kNearBytes counts as far: the layer's other matrix evicts it.
    const int64_t bytes = Shape::numbers_bytes(outputs, inputs);
    const bool far = bytes >= kNearBytes;
    // A layer's two matrices of more than half of L2 evict each other. If many rows use what is
    // prefetched, it costs little.
    const bool fetched = far || (Kind::kFetches && rows >= kManyRows && bytes > kNearBytes / 2 &&
                                 next.bytes <= bytes / 8);
    Next left = fetched ? Next() : next;
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t at = Shape::first(outputs, panel), width = Shape::width(outputs, panel);
      if (width == 0) continue;  // the panels before have its outputs
      // Divisions are slow enough to matter if there are few rows: these are by constants.
      const bool whole = width == Shape::kPanel;
      const int64_t most_rows = whole ? Kind::kRows : Kind::kOtherRows;
      const int64_t blocks = whole ? (rows + Kind::kRows - 1) / Kind::kRows
                                   : (rows + Kind::kOtherRows - 1) / Kind::kOtherRows;
      // The first row of a block. Blocks have nearly the same size, but with tiles of 9 rows all
      // except the last two have 9. Those two have 9 and the rest, if the rest has at least 6 rows
      // (9 + 7 are faster than 8 + 8, but 7 + 7 than 9 + 5), otherwise half each.
      const bool even = Kind::kRows < 9 || !whole || blocks == 1;
      const int64_t each = !even ? 0 : blocks == 1 ? rows : quotient(rows, blocks);
      const int64_t more = rows - each * blocks;
      const int64_t full = (blocks - 2) * most_rows, rest = rows - full;
      const auto first_row = [&](int64_t block) {
        if (even) return block * each + smaller(block, more);
        if (block < blocks - 1) return block * most_rows;
        return block < blocks ? full + (rest > 14 ? most_rows : rest / 2) : rows;
      };
      // Each part of the panel is multiplied with all rows before the next part.
      const int64_t group_bytes = width * Kind::kGroup * int64_t(sizeof(Element));
      const int64_t far_bytes = N == 3 ? 3 * kFarPartBytes : kFarPartBytes;
      const int64_t part_bytes = far ? far_bytes : kNearPartBytes;
      int64_t part = groups;
      if (Kind::kRests && groups * group_bytes > part_bytes) {
        const int64_t most = quotient(part_bytes, group_bytes);
        const int64_t parts = quotient(groups + most - 1, most);
        part = round_up(quotient(groups + parts - 1, parts), Kind::kPad);
      }
      // Prefetch the next part if the matrix is not in L2. Every block of rows fetches its share, a
      // few lines per iteration, because a core can have only a few misses in flight. If there are
      // more blocks than lines, the first blocks fetch everything.
      const int64_t least = quotient(Kind::kUnroll * group_bytes / 64 + blocks - 1, blocks);
      const int64_t lines = far ? least : fetched ? round_up(least, 2) : 0;
      for (int64_t group = 0; group < groups; group += part) {
        const int64_t end = smaller(group + part, groups), size = (end - group) * group_bytes;
        const int64_t share = (end - group) / Kind::kUnroll * lines * 64;
        const char* const then =
            fetched && at + width == Shape::first(outputs, last) && end == groups
                ? static_cast<const char*>(next.data)
                : reinterpret_cast<const char*>(panel_from(at) + end * width * Kind::kGroup);
        for (int64_t block = 0; block < blocks; ++block) {
          const int64_t row = first_row(block), next_row = first_row(block + 1);
          const int64_t below = block + 1 < blocks ? first_row(block + 2) - next_row : 0;
          const bool fetches = fetched && then && share * block < size;
          row_block<larger(Kind::kRows, Kind::kOtherRows)>(
              next_row - row, at, width, row,
              {group, end, fetches ? then + share * block : nullptr, fetches ? lines : 0, below,
               far},
              left);
        }
      }
    }
  }

 private:
  static constexpr int kLines = 4;      // of Next, per iteration of a microkernel
  static constexpr int kManyRows = 27;  // three blocks

  const Element* panel_from(int64_t at) const { return numbers + at * groups * Kind::kGroup; }

  // The groups [begin, end) of a panel. Each iteration prefetches `lines` lines from `ahead` on; an
  // even number, unless the matrix is far. below: the number of rows in the next block.
  struct Span {
    int64_t begin, end;
    const char* ahead;
    int64_t lines, below;
    bool far;
  };

  // For up to kOtherRows rows. Computes several panels at once if that keeps more accumulators
  // busy. A matrix that exceeds L2 is read in memory order instead, for which few accumulators are
  // enough.
  template <int R>
  void small_batch(int64_t rows, int64_t first, int64_t last) const {
    if constexpr (R > 0) {
      if (rows < R) return small_batch<R - 1>(rows, first, last);
      constexpr int near = larger(Kind::kChains / (R * N), 1);
      constexpr int far = larger(kFarChains / (R * N), 1);
      if (near == far || !Shape::is_far(outputs, inputs)) return panel_group<R, near>(first, last);
      return panel_group<R, far>(first, last);
    }
  }
  template <int R, int S>
  void panel_group(int64_t panel, int64_t last) const {
    Next nothing;
    int64_t at = Shape::first(outputs, panel);
    if constexpr (R == 1 && RowTile<Kind>::kPanels > 0) {
      constexpr int64_t each = RowTile<Kind>::kPanels;
      const int64_t times = (smaller(last, outputs / Shape::kPanel) - panel) / each;
      if (times > 0) {
        RowTile<Kind>::run(extra, at, panel_from(at), x, groups, times, (start ? start : out) + at,
                           out + at);
        panel += times * each, at += times * each * Shape::kPanel;
      }
    }
    if constexpr (S > 1)
      for (; panel + S <= last && Shape::first(outputs, panel + S) == at + S * Shape::kPanel;
           panel += S, at += S * Shape::kPanel)
        microkernel<R, S, N, false>(at, 0, {0, groups, nullptr, 0, 0, false}, nothing);
    for (; panel < last; ++panel) {
      const int64_t width = Shape::width(outputs, panel);
      one_panel<R, false>(at, width, 0, {0, groups, nullptr, 0, 0, false}, nothing);
      at += width;
    }
  }

  template <int R>
  void row_block(int64_t rows, int64_t at, int64_t width, int64_t row, const Span& span,
                 Next& next) const {
    if constexpr (R >= (Kind::kOtherRows + 1) / 2) {  // `run` makes no smaller blocks
      if (rows < R) return row_block<R - 1>(rows, at, width, row, span, next);
      one_panel<R, Kind::kFetches>(at, width, row, span, next);
    }
  }

  // A narrow panel is the last one: not worth a second version that prefetches sums and `next`.
  template <int R, bool kFetches, int W = 4>
  void one_panel(int64_t at, int64_t width, int64_t row, const Span& span, Next& next) const {
    if constexpr (W > 0) {
      constexpr bool exists = W <= N + (N == 3) && R <= (W == N ? Kind::kRows : Kind::kOtherRows);
      constexpr bool fetches = kFetches && W >= N;
      if constexpr (exists)
        if (width == W * L) return microkernel<R, 1, W, fetches>(at, row, span, next);
      one_panel<R, kFetches, W - 1>(at, width, row, span, next);
    }
  }

  // Multiplies R rows with S panels of W registers each, from output `at` on. kFetches: prefetches
  // the sums of up to R rows below and a part of `next`, which is set to the rest.
  template <int R, int S, int W, bool kFetches>
  __attribute__((noinline)) void microkernel(int64_t at, int64_t row, const Span& span,
                                             Next& next) const {
    // Local copies for the loop and its end, because the compiler must assume that a store to `out`
    // changes the members.
    const int64_t to_next = stride, from_next = x_stride;
    const int64_t end = span.end, lines = span.lines;
    const typename Kind::Extra more = extra;
    const char* const from = x + row * x_stride;
    Out* const to = out + row * stride + at;
    const bool fresh = start && span.begin == 0;
    const Out* const base = fresh ? start + at : to;
    const int64_t base_next = fresh ? 0 : stride;
    const Element* w[S];
    const char* xs[R];
    for (int s = 0; s < S; ++s)
      w[s] = panel_from(at + s * Shape::kPanel) + span.begin * W * L * Kind::kGroup;
    for (int r = 0; r < R; ++r) xs[r] = from + r * from_next + Kind::kRowHead;
    const int ragged =
        int(smaller(L, outputs - at - (S * W - 1) * L));  // lanes of the last register
    const auto fetch_below = [&]() __attribute__((always_inline)) {
      unrolled<R>(TSM_BODY(r) {
        if (r < span.below)
          unrolled<W>(TSM_BODY(v) { __builtin_prefetch(to + (R + r) * to_next + v * L, 1); });
      });
    };
    if constexpr (Tile<Kind, R, W>::kExists && S == 1) {
      const int64_t below = kFetches && !span.far ? span.below : 0;
      const bool fetch = kFetches && !span.ahead && next.bytes > 0;
      const auto run = [&](const Out* from, int64_t from_next, Out* to, int64_t to_next,
                           int64_t rows) {
        Tile<Kind, R, W>::run(w[0], xs[0] + span.begin * Kind::kFactorBytes, x_stride,
                              end - span.begin, from, from_next, to, to_next,
                              fetch ? static_cast<const char*>(next.data) : span.ahead,
                              fetch      ? kLines
                              : span.far ? -lines
                                         : lines,
                              to + R * to_next, rows);
      };
      if (ragged == L) {
        run(base, base_next, to, to_next, below);
      } else {  // in a copy, because the tile reads and writes whole registers
        const size_t bytes = size_t((W - 1) * L + ragged) * sizeof(Out);
        alignas(64) Out copy[R][W * L] = {};
        for (int r = 0; r < R; ++r) std::memcpy(copy[r], base + r * base_next, bytes);
        run(copy[0], W * L, copy[0], W * L, 0);
        for (int r = 0; r < R; ++r) std::memcpy(to + r * to_next, copy[r], bytes);
      }
      if (fetch) next = next.after((end - span.begin) / Kind::kUnroll * kLines * 64);
    } else {
      Sum sums[R][S * W];
      unrolled<R>(TSM_BODY(r) {
        unrolled<S * W>(TSM_BODY(v) {
          sums[r][v] = Kind::begin(more, at + v * L, base + r * base_next + v * L,
                                   v == S * W - 1 ? ragged : L);
        });
      });
      if constexpr (kFetches) fetch_below();
      if constexpr (SumTile<Kind, R, W>::kExists && S == 1) {
        SumTile<Kind, R, W>::run(w[0], xs[0] + span.begin * Kind::kFactorBytes, x_stride,
                                 end - span.begin, sums, span.ahead, lines);
      } else {
#if defined(__x86_64__)  // verified there: otherwise gcc moves all accumulators for an empty loop
        if (span.begin >= end) __builtin_unreachable();
#endif
        const char* ahead = span.ahead;
        Next left = next;
        for (int64_t g = span.begin; g < end; g += Kind::kUnroll) {
          for (int64_t i = 0; i < lines; ++i, ahead += 64) __builtin_prefetch(ahead, 0, 2);
          if (kFetches && left.bytes > 0) {
            const char* const from = static_cast<const char*>(left.data);
            unrolled<kLines>(TSM_BODY(i) { __builtin_prefetch(from + 64 * i, 0, 2); });
            left = left.after(64 * kLines);
          }
          typename FactorsOf<Kind, R>::Type factors[R];
          unrolled<R>(
              TSM_BODY(r) { factors[r] = FactorsOf<Kind, R>::at(xs[r] + g * Kind::kFactorBytes); });
          step<R, S, W, 0>(w, factors, sums);
          if constexpr (Kind::kUnroll > 1) step<R, S, W, 1>(w, factors, sums);
          if constexpr (Kind::kUnroll > 2) step<R, S, W, 2>(w, factors, sums);
          if constexpr (Kind::kUnroll > 3) step<R, S, W, 3>(w, factors, sums);
          for (int s = 0; s < S; ++s) w[s] += Kind::kUnroll * W * L * Kind::kGroup;
        }
        if (kFetches) next = left;
      }
      unrolled<R>(TSM_BODY(r) {
        unrolled<S * W>(TSM_BODY(v) {
          Kind::end(more, from + r * from_next, at + v * L, sums[r][v],
                    base + r * base_next + v * L, to + r * to_next + v * L,
                    v == S * W - 1 ? ragged : L);
        });
      });
    }
  }

  template <int R, int S, int W, int I>
  TSM_CELL static void step(const Element* const* w,
                            const typename FactorsOf<Kind, R>::Type* factors, Sum (*sums)[S * W]) {
    unrolled<S>(TSM_BODY(s) {
      typename Kind::Loaded loaded[W];
      unrolled<W>(TSM_BODY(v) { loaded[v] = Kind::load(w[s] + (I * W + v) * L * Kind::kGroup); });
      part<R, S, W, I, 0>(loaded, factors, sums, s);
      if constexpr (Kind::kParts > 1) part<R, S, W, I, 1>(loaded, factors, sums, s);
    });
  }
  template <int R, int S, int W, int I, int Part>
  TSM_CELL static void part(const typename Kind::Loaded* loaded,
                            const typename FactorsOf<Kind, R>::Type* factors, Sum (*sums)[S * W],
                            int s) {
    typename Kind::Weights numbers[W];
    unrolled<W>(TSM_BODY(v) { numbers[v] = Kind::template part<Part>(loaded[v]); });
    unrolled<R>(TSM_BODY(r) {
      unrolled<W>(TSM_BODY(v) {
        Sum& sum = sums[r][s * W + v];
        sum = Kind::template madd<I * Kind::kParts + Part>(sum, numbers[v], factors[r]);
      });
    });
  }
};

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
