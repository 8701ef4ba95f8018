// Products by AMX: up to 16 rows times up to 4 blocks of 16 outputs in the tile registers.
//
// Tiles 0-3 are sums, 4 the activations of a block of inputs, 5-7 its weights in turn. A tile's row
// is a row of activations (or four-byte groups of the inputs of 16 outputs), so that each row of
// the sums is computed on its own: the same bits for any number of rows.
#pragma once
#include <immintrin.h>

#include "kernels/matrix.h"

namespace tsm {
inline namespace TSM_LEVEL {
namespace {

constexpr int kAmxRows = 16, kAmxGroups = 16;  // rows of a tile; groups of inputs in a block

// The shapes of the tiles for `rows` rows; released at the end, which keeps the thread's saved
// state small.
class Tiles {
 public:
  ~Tiles() {
    if (rows_ != 0) _tile_release();
  }
  void configure(int rows) {
    if (rows == rows_) return;
    rows_ = rows;
    Config config = {};
    config.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      config.bytes[tile] = 64;
      config.rows[tile] = uint8_t(tile < 5 ? rows : kAmxGroups);
    }
    _tile_loadconfig(&config);
  }

 private:
  struct alignas(64) Config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  };
  int rows_ = 0;
};

// sums[rows, 16 W] += activations times `blocks` blocks of a panel of W registers. Kind: float
// sums of bfloat16 pairs, or integer sums of unsigned times signed bytes. kStream: the
// weights are read once, from far.
template <bool kFloat, bool kStream, int W>
struct AmxBlock {
  static void run(const char* w, const char* x, int64_t x_stride, int64_t blocks, void* sums,
                  int64_t sums_stride) {  // strides in bytes
    char* const at = static_cast<char*>(sums);
    _tile_loadd(0, at, sums_stride);
    if constexpr (W > 1) _tile_loadd(1, at + 64, sums_stride);
    if constexpr (W > 2) _tile_loadd(2, at + 128, sums_stride);
    if constexpr (W > 3) _tile_loadd(3, at + 192, sums_stride);
    for (int64_t b = 0; b < blocks; ++b) {
      if constexpr (kStream) prefetch(w + kAhead);
      _tile_loadd(4, x, x_stride);
      _tile_loadd(5, w, 64 * W);
      if constexpr (kFloat)
        _tile_dpbf16ps(0, 4, 5);
      else
        _tile_dpbusd(0, 4, 5);
      if constexpr (W > 1) {
        _tile_loadd(6, w + 64, 64 * W);
        if constexpr (kFloat)
          _tile_dpbf16ps(1, 4, 6);
        else
          _tile_dpbusd(1, 4, 6);
      }
      if constexpr (W > 2) {
        _tile_loadd(7, w + 128, 64 * W);
        if constexpr (kFloat)
          _tile_dpbf16ps(2, 4, 7);
        else
          _tile_dpbusd(2, 4, 7);
      }
      if constexpr (W > 3) {
        _tile_loadd(5, w + 192, 64 * W);
        if constexpr (kFloat)
          _tile_dpbf16ps(3, 4, 5);
        else
          _tile_dpbusd(3, 4, 5);
      }
      x += 64;
      w += kAmxGroups * 64 * W;
    }
    _tile_stored(0, at, sums_stride);
    if constexpr (W > 1) _tile_stored(1, at + 64, sums_stride);
    if constexpr (W > 2) _tile_stored(2, at + 128, sums_stride);
    if constexpr (W > 3) _tile_stored(3, at + 192, sums_stride);
  }

 private:
  static constexpr int64_t kAhead = 2048;
  TSM_CELL static void prefetch(const char* w) {
    for (int line = 0; line < kAmxGroups * W; ++line) __builtin_prefetch(w + 64 * line, 0, 3);
  }
};

template <bool kFloat, bool kStream>
TSM_CELL void amx_block(int64_t vectors, const char* w, const char* x, int64_t x_stride,
                        int64_t blocks, void* sums, int64_t sums_stride) {
  switch (vectors) {
    case 1:
      return AmxBlock<kFloat, kStream, 1>::run(w, x, x_stride, blocks, sums, sums_stride);
    case 2:
      return AmxBlock<kFloat, kStream, 2>::run(w, x, x_stride, blocks, sums, sums_stride);
    case 3:
      return AmxBlock<kFloat, kStream, 3>::run(w, x, x_stride, blocks, sums, sums_stride);
    default:
      return AmxBlock<kFloat, kStream, 4>::run(w, x, x_stride, blocks, sums, sums_stride);
  }
}

}  // namespace
}  // namespace TSM_LEVEL
}  // namespace tsm
