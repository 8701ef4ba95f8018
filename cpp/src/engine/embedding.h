// Rows of the embedding, read from the mapped file.
#pragma once
#include <cstdint>

#include "core/bfloat16.h"
#include "kernels/level.h"

namespace tsm {

class Embedding {
 public:
  Embedding() = default;
  explicit Embedding(const MatrixSource& table) : table_(table) {}

  int64_t width() const { return table_.inputs; }

  // The row of a token: in the file, or widened into `scratch` [width].
  const float* row(int64_t token, float* scratch) const {
    const int64_t width = table_.inputs, at = token * width;
    switch (table_.type) {
      case MatrixSource::kBFloat16: {
        const auto* x = static_cast<const bfloat16*>(table_.data) + at;
        for (int64_t i = 0; i < width; ++i) scratch[i] = float(x[i]);
        return scratch;
      }
      case MatrixSource::kInt8: {
        const auto* x = static_cast<const int8_t*>(table_.data) + at;
        for (int64_t i = 0; i < width; ++i) scratch[i] = table_.scales[token] * float(x[i]);
        return scratch;
      }
      default:
        return static_cast<const float*>(table_.data) + at;
    }
  }

 private:
  MatrixSource table_{};
};

}  // namespace tsm
