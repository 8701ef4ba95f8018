// The rows of the embedding, stored as in the file.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/aligned.h"
#include "engine/file/matrix_row.h"

namespace tsm {

class Embedding {
 public:
  Embedding() = default;
  // A copy: the file may change once the model is loaded.
  explicit Embedding(const MatrixSource& table) : table_(table) {
    const int64_t each = table.type == MatrixSource::kFloat32    ? 4
                         : table.type == MatrixSource::kBFloat16 ? 2
                                                                 : 1;
    const int64_t bytes = table.outputs * table.inputs * each;
    numbers_ = Aligned<uint8_t>(bytes, Uninitialized());
    std::memcpy(numbers_.data(), table.data, size_t(bytes));
    table_.data = numbers_.data();
    if (!table.scales) return;
    scales_ = Aligned<float>(table.outputs, Uninitialized());
    std::memcpy(scales_.data(), table.scales, size_t(table.outputs) * 4);
    table_.scales = scales_.data();
  }

  // The row of a token, either in place or widened into `scratch` [width].
  const float* row(int64_t token, float* scratch) const {
    if (table_.type == MatrixSource::kFloat32)
      return static_cast<const float*>(table_.data) + token * table_.inputs;
    read_row(table_, token, scratch);
    return scratch;
  }

 private:
  MatrixSource table_{};  // of what follows
  Aligned<uint8_t> numbers_;
  Aligned<float> scales_;
};

}  // namespace tsm
