// A matrix packed for a level, and its product over the model's threads.
#pragma once
#include <cstdint>

#include "core/aligned.h"
#include "core/error.h"
#include "engine/split.h"
#include "kernels/level.h"

namespace tsm {

// Bytes of the packed matrix. 8-bit products are summed in 32 bits, which bounds their length.
inline int64_t packed_bytes(const MatrixKernels& kernels, const MatrixSource& source) {
  const int64_t bytes = kernels.packed_bytes(source.outputs, source.inputs);
  require(bytes >= 0,
          "a matrix has " + std::to_string(source.inputs) +
              " inputs, too many for int8; accepted: float32, bfloat16",
          ErrorKind::kBadFile);
  return bytes;
}

class Matrix {
 public:
  Matrix() = default;
  Matrix(const MatrixKernels& kernels, const MatrixSource& source)
      : kernels_(&kernels),
        outputs_(source.outputs),
        inputs_(source.inputs),
        encoded_bytes_(kernels.encoded_bytes(source.inputs)),
        packed_(tsm::packed_bytes(kernels, source)) {
    kernels.pack(source, packed_.data());
  }

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  int64_t bytes() const { return packed_.size(); }

  // Rows of activations as `multiply` reads them. All matrices of one kind and as many inputs read
  // the same form.
  int64_t encoded_bytes() const { return encoded_bytes_; }
  void encode(const float* x, uint8_t* encoded) const { kernels_->encode(x, inputs_, encoded); }

  // out[r, :] += x[r, :] w^T. Threads share the outputs, so that no sum is cut.
  void multiply(ThreadPool& pool, int64_t rows, const uint8_t* x, float* out,
                int64_t stride) const {
    if (rows == 0) return;
    const int64_t panels = (outputs_ + kernels_->panel - 1) / kernels_->panel;
    split(pool, panels, outputs_ * inputs_ * rows, [&](int64_t first, int64_t last) {
      kernels_->multiply(packed_.data(), outputs_, inputs_, rows, x, out, stride, first, last);
    });
  }

 private:
  const MatrixKernels* kernels_ = nullptr;
  int64_t outputs_ = 0, inputs_ = 0, encoded_bytes_ = 0;
  Aligned<uint8_t> packed_;
};

}  // namespace tsm
