// Products with bfloat16 and int8 matrices, using AMX.
//
// If there are only a few rows, ordinary instructions are used, which are then faster and give the
// same bits: int8 sums are exact anyway; for bfloat16 see matrix_amx_rows.h.
#pragma once
#include "kernels/cpu/product/matrix_amx_rows.h"
#include "kernels/cpu/product/matrix_float.h"
#include "kernels/cpu/product/matrix_int8.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

// The layout of BFloat16, padded to whole tiles; activations stay bfloat16.
struct BFloat16Tiles {
  using Element = uint16_t;
  static constexpr int kLanes = SimdFloat::kLanes, kGroup = 2, kPad = kAmxGroups;
  static constexpr int kVectors = kPanelVectors;
  static constexpr MatrixSource::Type kSource = MatrixSource::kBFloat16;
};

struct AmxBFloat16Matrix {
  using Shape = Layout<BFloat16Tiles>;
  static constexpr int kPanel = Shape::kPanel;

  static int64_t packed_bytes(int64_t outputs, int64_t inputs) {
    return Shape::numbers_bytes(outputs, inputs);
  }
  static void pack(const MatrixSource& w, void* packed) {
    if (pack_neighbours_bfloat16<BFloat16Tiles>(w, static_cast<uint16_t*>(packed))) return;
    if (pack_groups<BFloat16Tiles>(w, static_cast<uint16_t*>(packed))) return;
    pack_numbers<BFloat16Tiles, float>(w, BFloat16::convert, static_cast<uint16_t*>(packed));
  }
  static int64_t encoded_bytes(int64_t inputs) { return Shape::groups(inputs) * 4; }
  static void encode(const void* x, int64_t inputs, void* encoded) {
    const float* from = static_cast<const float*>(x);
    uint16_t* to = static_cast<uint16_t*>(encoded);
    int64_t k = 0;
    for (; k + 32 <= inputs; k += 32) {  // subnormal numbers become 0, as AMX treats them
      const __m512bh both =
          _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + k + 16), _mm512_loadu_ps(from + k));
      std::memcpy(to + k, &both, sizeof(both));
    }
    for (; k < inputs; ++k) to[k] = narrowed(from[k]);
    for (; k < encoded_bytes(inputs) / 2; ++k) to[k] = 0;
  }

  static void multiply(const void* packed, int64_t outputs, int64_t inputs, int64_t rows,
                       const void* x, const Accumulators& sums, int64_t first, int64_t last,
                       const Next&) {
    const int64_t stride = sums.stride;
    if (rows < kFewRows) {
      put_start<float>(sums, rows, first * kPanel, smaller(last * kPanel, outputs));
      const AmxRows<Shape> few_rows = {static_cast<const uint16_t*>(packed),
                                       outputs,
                                       inputs,
                                       static_cast<const char*>(x),
                                       encoded_bytes(inputs),
                                       static_cast<float*>(sums.rows),
                                       stride};
      return few_rows.run(rows, first, last);
    }
    const int64_t blocks = Shape::groups(inputs) / kAmxGroups;
    const bool far = Shape::is_far(outputs, inputs);
    const char* const xs = static_cast<const char*>(x);
    Tiles tiles;
    for (int64_t panel = first; panel < last; ++panel) {
      const char* w = reinterpret_cast<const char*>(static_cast<const uint16_t*>(packed) +
                                                    Shape::panel_at(outputs, inputs, panel));
      const int64_t at = panel * kPanel, width = smaller(kPanel, outputs - at);
      float* const to = static_cast<float*>(sums.rows) + at;
      put_start<float>(sums, rows, at, at + width);
      const int64_t whole = rows / kAmxRows * kAmxRows;
      // Many rows: a part of the panel that fits L1 is multiplied with all of them before the next
      // part. The sums are stored in between, which does not change their bits.
      const int64_t part = whole > kAmxRows ? kAmxNear : blocks;
      for (int64_t block = 0; block < blocks && whole > 0; block += part)
        for (int64_t row = 0; row < whole; row += kAmxRows)
          tile_rows(tiles, far && row == 0, kAmxRows, w, xs + row * encoded_bytes(inputs),
                    encoded_bytes(inputs), block, smaller(part, blocks - block), to + row * stride,
                    stride, width);
      if (whole < rows)
        tile_rows(tiles, far && whole == 0, int(rows - whole), w,
                  xs + whole * encoded_bytes(inputs), encoded_bytes(inputs), 0, blocks,
                  to + whole * stride, stride, width);
    }
  }
  static constexpr MatrixKernels kernels() {
    return {packed_bytes, pack, encoded_bytes, encode, kPanel, Shape::first, multiply};
  }

 private:
  static constexpr int64_t kFewRows = 3;

  static void run(bool stream, int64_t vectors, const char* w, const char* x, int64_t x_stride,
                  int64_t blocks, void* sums, int64_t stride) {
    if (stream)
      amx_block<true, true>(vectors, w, x, x_stride, blocks, sums, stride);
    else
      amx_block<true, false>(vectors, w, x, x_stride, blocks, sums, stride);
  }

  static void tile_rows(Tiles& tiles, bool stream, int rows, const char* w, const char* x,
                        int64_t x_stride, int64_t block, int64_t blocks, float* out, int64_t stride,
                        int64_t width) {
    const int64_t vectors = (width + 15) / 16;
    w += block * kAmxGroups * 64 * vectors;
    x += block * 64;
    tiles.configure(rows);
    if (width % 16 == 0) return run(stream, vectors, w, x, x_stride, blocks, out, stride * 4);
    alignas(64) float sums[kAmxRows][kPanel] = {};  // whole tiles: `out` ends inside one
    for (int row = 0; row < rows; ++row)
      std::memcpy(sums[row], out + row * stride, size_t(width) * 4);
    run(stream, vectors, w, x, x_stride, blocks, sums, sizeof(sums[0]));
    for (int row = 0; row < rows; ++row)
      std::memcpy(out + row * stride, sums[row], size_t(width) * 4);
  }
};

struct AmxInt8Matrix : Int8Matrix {
  static void multiply(const void* packed, int64_t outputs, int64_t inputs, int64_t rows,
                       const void* x, const Accumulators& sums, int64_t first, int64_t last,
                       const Next& next) {
    if (rows < kFewRows)
      return Int8Matrix::multiply(packed, outputs, inputs, rows, x, sums, first, last, next);
    constexpr int P = Shape::kPanel;
    const Int8::Extra more = extra(packed, outputs);
    const int64_t blocks = Shape::groups(inputs) / kAmxGroups, each = encoded_bytes(inputs);
    const bool far = Shape::is_far(outputs, inputs);
    Tiles tiles;
    for (int64_t panel = first; panel < last; ++panel) {
      const int8_t* w = numbers(packed, outputs) + Shape::panel_at(outputs, inputs, panel);
      const int64_t at = panel * P, vectors = Shape::width(outputs, panel) / L;
      for (int64_t row = 0; row < rows; row += kAmxRows) {
        const int count = int(smaller(kAmxRows, rows - row));
        const char* const from = static_cast<const char*>(x) + row * each;
        alignas(64) Ints ints[kAmxRows][kPanelVectors];
        for (int r = 0; r < count; ++r)
          for (int64_t v = 0; v < vectors; ++v)
            ints[r][v] = Int8::begin(more, at + v * L, nullptr, L);
        tiles.configure(count);
        const char* const bytes = reinterpret_cast<const char*>(w);
        if (far && row == 0)
          amx_block<false, true>(vectors, bytes, from + Int8::kRowHead, each, blocks, ints,
                                 sizeof(ints[0]));
        else
          amx_block<false, false>(vectors, bytes, from + Int8::kRowHead, each, blocks, ints,
                                  sizeof(ints[0]));
        for (int r = 0; r < count; ++r) {
          float* const to = static_cast<float*>(sums.rows) + (row + r) * sums.stride + at;
          const float* const base = sums.start ? static_cast<const float*>(sums.start) + at : to;
          for (int64_t v = 0; v < vectors; ++v)
            Int8::end(more, from + r * each, at + v * L, ints[r][v], base + v * L, to + v * L,
                      int(smaller(L, outputs - at - v * L)));
        }
      }
    }
  }
  static constexpr MatrixKernels kernels() {
    return {packed_bytes, pack, encoded_bytes, encode, Shape::kPanel, Shape::first, multiply};
  }

 private:
  static constexpr int64_t kFewRows = 6;
};

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
