// The streaming functions of one instruction set; compiled once per instruction set
// (cpp/cmake/kernels.cmake). Do not use anything from the standard library that could emit a
// symbol: see tests/cpp/kernels/check_symbols.cmake.
#include "kernels/cpu/isa.h"
#include "kernels/cpu/product/matrix_float.h"
#include "kernels/cpu/product/matrix_int8.h"
#include "kernels/cpu/stream/all_finite.h"
#include "kernels/cpu/stream/cell_step.h"
#include "kernels/cpu/stream/interpret.h"
#include "kernels/cpu/stream/log_sum_exp.h"
#if defined(TSM_GENERIC)
#include "kernels/cpu/product/matrix_float64.h"
#elif defined(__AMX_BF16__) && defined(__AMX_INT8__)
#include "kernels/cpu/product/matrix_amx.h"
#endif

#define TSM_TEXT_OF(x) #x
#define TSM_TEXT(x) TSM_TEXT_OF(x)

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

#if defined(__AMX_BF16__) && defined(__AMX_INT8__)
using BFloat16Kernels = AmxBFloat16Matrix;
using Int8Kernels = AmxInt8Matrix;
#else
using BFloat16Kernels = FloatMatrix<BFloat16>;
using Int8Kernels = Int8Matrix;
#endif

constexpr CellForward<float> kCells[] = {
#define TSM_ENTRY(cell) CellRow<cells::cell, SimdFloat, float>::table(),
    TSM_FOR_EACH_CELL(TSM_ENTRY)
#undef TSM_ENTRY
};

}  // namespace

extern const Isa kIsa;
const Isa kIsa = {
    TSM_TEXT(TSM_ISA_NAME),
    {FloatMatrix<Float32>::kernels(), BFloat16Kernels::kernels(), Int8Kernels::kernels(),
#ifdef TSM_GENERIC
     Float64Matrix::kernels()
#else
     {}
#endif
    },
    kCells,
    int(sizeof(kCells) / sizeof(kCells[0])),
    Interpreter::run,
    log_sum_exp,
    all_finite_lanes,
};

}  // namespace TSM_ISA_NAME
}  // namespace tsm
