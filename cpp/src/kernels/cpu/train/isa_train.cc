// The training table of one instruction set; compiled once per instruction set
// (cpp/cmake/kernels.cmake).
#include "cells/generated/all.h"
#include "kernels/cpu/product/transpose.h"
#include "kernels/cpu/train/cell_train.h"

#define TSM_TEXT_OF(x) #x
#define TSM_TEXT(x) TSM_TEXT_OF(x)

namespace tsm {
inline namespace TSM_ISA_NAME {

// Plain loops: every compiler vectorises them.
static void widen(const bfloat16* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = uint32_t(from[i].bits) << 16;
    std::memcpy(to + i, &bits, 4);
  }
}

static void round(const float* from, int64_t n, bfloat16* to) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t u;
    std::memcpy(&u, from + i, 4);
    const uint32_t nearest = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    to[i].bits = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
  }
}

static void add_rows(const float* from, int64_t stride, int64_t rows, int64_t columns,
                     float* sums) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4, from += 4 * stride)
    for (int64_t j = 0; j < columns; ++j)
      sums[j] = sums[j] + from[j] + from[stride + j] + from[2 * stride + j] + from[3 * stride + j];
  for (; i < rows; ++i, from += stride)
    for (int64_t j = 0; j < columns; ++j) sums[j] += from[j];
}

static constexpr CellTraining<float> kCells[] = {
#define TSM_ENTRY(cell) CellTrainer<cells::cell, SimdFloat, float>::table(),
    TSM_FOR_EACH_CELL(TSM_ENTRY)
#undef TSM_ENTRY
};
static constexpr IsaTraining kTable = {TSM_TEXT(TSM_ISA_NAME),
                                       kCells,
                                       int(sizeof(kCells) / sizeof(kCells[0])),
                                       widen,
                                       round,
                                       transpose,
                                       add_rows};
const IsaTraining& training_table() { return kTable; }

}  // namespace TSM_ISA_NAME

#ifdef TSM_GENERIC
static constexpr CellTraining<double> kCellsF64[] = {
#define TSM_ENTRY(cell) CellTrainer<cells::cell, Scalar<double>, double>::table(),
    TSM_FOR_EACH_CELL(TSM_ENTRY)
#undef TSM_ENTRY
};
const CellTraining<double>* training_cells_f64() { return kCellsF64; }
#endif

}  // namespace tsm
