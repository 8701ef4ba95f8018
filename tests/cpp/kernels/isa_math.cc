// Compiled once per instruction set, like the kernels.
#include "isa_math.h"

#include "cells/generated/primitives.h"
#include "cells/simd.h"

namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

using M = Defined<SimdFloat>;

#define TSM_OVER(name)                                              \
  void name(const float* x, int64_t n, float* y) {                  \
    for (int64_t i = 0; i < n; i += M::kLanes) {                    \
      const int count = n - i < M::kLanes ? int(n - i) : M::kLanes; \
      M::store(M::name(M::load(x + i, count)), y + i, count);       \
    }                                                               \
  }
TSM_FOR_EACH_FUNCTION(TSM_OVER)
TSM_FOR_EACH_SLOPE(TSM_OVER)

#define TSM_ENTRY(name) {#name, name},
constexpr MathFunction kFunctions[] = {TSM_FOR_EACH_FUNCTION(TSM_ENTRY)
                                           TSM_FOR_EACH_SLOPE(TSM_ENTRY)};

}  // namespace

extern const IsaMath kMath;
const IsaMath kMath = {M::kLanes, int(sizeof(kFunctions) / sizeof(kFunctions[0])), kFunctions};

}  // namespace TSM_ISA_NAME
}  // namespace tsm
