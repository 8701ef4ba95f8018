// Products by AMX: up to 16 rows times blocks of 16 outputs in the tile registers.
//
// Tiles 0 and 1 are sums, 2 the activations of a block of inputs, 3 its weights; the other four are
// unused. Tile registers are renamed, so that a load need not wait for the product before it, but
// hardly while the other hyperthread is busy (docs/internals/cpu_speed.md).
//
// A tile's row is a row of activations (or four-byte groups of the inputs of 16 outputs), so that
// each row of the sums is computed on its own: the same bits for any number of rows.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/product/matrix.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

constexpr int kAmxRows = 16, kAmxGroups = 16;  // rows of a tile; groups of inputs in a block
constexpr int64_t kAmxNear = 8;  // blocks: up to 32 KB, still in L1 when they are read again

// The intrinsics do not tell the compiler what they read.
TSM_CELL void all_is_written() { __asm__ volatile("" ::: "memory"); }

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
    for (int tile = 0; tile < 4; ++tile) {
      config.bytes[tile] = 64;
      config.rows[tile] = uint8_t(tile < 3 ? rows : kAmxGroups);
    }
    all_is_written();
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
// weights come from beyond L2 and are prefetched; for those in L2 that costs more than it saves.
template <bool kFloat, bool kStream, int W>
struct AmxBlock {
  static void run(const char* w, const char* x, int64_t x_stride, int64_t blocks, void* sums,
                  int64_t sums_stride) {  // strides in bytes
    char* const at = static_cast<char*>(sums);
    all_is_written();
    for (int64_t left = blocks; left > 0; left -= kAmxNear) {
      const int64_t some = smaller(left, kAmxNear);
      outputs<0>(w, x, x_stride, some, at, sums_stride);
      if constexpr (W > 2) outputs<2>(w, x, x_stride, some, at, sums_stride);
      x += kAmxNear * 64;
      w += kAmxNear * kBlock;
    }
  }

 private:
  static constexpr int64_t kBlock = kAmxGroups * 64 * W, kAhead = 2048;

  // The 16 outputs of register V, and those of the next if there is one.
  template <int V>
  TSM_CELL static void outputs(const char* w, const char* x, int64_t x_stride, int64_t blocks,
                               char* sums, int64_t sums_stride) {
    constexpr bool kTwo = V + 1 < W;
    sums += 64 * V;
    _tile_loadd(0, sums, sums_stride);
    if constexpr (kTwo) _tile_loadd(1, sums + 64, sums_stride);
    for (int64_t b = 0; b < blocks; ++b) {
      if constexpr (kStream && V == 0) prefetch(w + kAhead);
      _tile_loadd(2, x, x_stride);
      _tile_loadd(3, w + 64 * V, 64 * W);
      if constexpr (kFloat)
        _tile_dpbf16ps(0, 2, 3);
      else
        _tile_dpbusd(0, 2, 3);
      if constexpr (kTwo) {
        _tile_loadd(3, w + 64 * (V + 1), 64 * W);
        if constexpr (kFloat)
          _tile_dpbf16ps(1, 2, 3);
        else
          _tile_dpbusd(1, 2, 3);
      }
      x += 64;
      w += kBlock;
    }
    _tile_stored(0, sums, sums_stride);
    if constexpr (kTwo) _tile_stored(1, sums + 64, sums_stride);
  }

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
}  // namespace TSM_ISA_NAME
}  // namespace tsm
