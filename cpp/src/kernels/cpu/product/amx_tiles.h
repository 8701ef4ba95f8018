// Products with AMX: up to 16 rows times blocks of 16 outputs in the tile registers.
//
// Tiles 0 and 1 hold sums, tile 2 the activations of a block of inputs, tile 3 its weights; the
// other four are unused. Tile registers are renamed, so a load need not wait for the previous
// product. This hardly helps while the other hyperthread is busy
// (docs/internals/measured_cpu_products.md).
//
// A tile row is one row of activations or, for weights, the four-byte groups of 16 outputs. Each
// row of sums is computed on its own, so the bits are the same for any number of rows.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/product/matrix.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

constexpr int kAmxRows = 16, kAmxGroups = 16;  // rows of a tile; groups of inputs in a block
constexpr int64_t kAmxNear = 8;  // blocks: up to 32 KB, which stay in L1 until they are read again

// A compiler barrier: the intrinsics do not declare which memory they read.
TSM_CELL void all_is_written() { __asm__ volatile("" ::: "memory"); }

// Configures the tiles for `rows` rows and releases them when destroyed, which keeps the thread's
// saved state small.
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

// sums[rows, 16 W] += activations times `blocks` blocks of a panel of W registers. kFloat: float
// sums of bfloat16 pairs, otherwise integer sums of unsigned times signed bytes. kStream: the
// weights are not in L2 and are prefetched; for weights in L2 that costs more than it saves.
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

  // Computes the 16 outputs of register V, and those of the next one if it exists.
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
