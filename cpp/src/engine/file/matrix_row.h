// A row of a file's matrix as floats, whatever its type.
#pragma once
#include <cstdint>

#include "core/bfloat16.h"
#include "kernels/weights.h"

namespace tsm {

// to[k] = w[i, k]. A file may hold float32, bfloat16, or int8 with scales.
inline void read_row(const MatrixSource& w, int64_t i, float* to) {
  const auto all = [&](const auto* from, const auto& convert) {
    from += i * w.row;
    for (int64_t k = 0; k < w.inputs; ++k) to[k] = convert(from[k * w.column]);
  };
  switch (w.type) {
    case MatrixSource::kBFloat16:
      return all(static_cast<const bfloat16*>(w.data), [](bfloat16 x) { return float(x); });
    case MatrixSource::kInt8:
      return all(static_cast<const int8_t*>(w.data),
                 [scale = w.scales[i]](int8_t x) { return scale * float(x); });
    default:
      return all(static_cast<const float*>(w.data), [](float x) { return x; });
  }
}

}  // namespace tsm
