#include "engine/cuda/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/bfloat16.h"
#include "engine/file/matrix_row.h"
#include "kernels/cuda/stream/product.h"

namespace tsm::cuda {
namespace {

constexpr int kBias = 128;  // added to int8 weights on the device (kernels/cuda/tensor_cores.cuh)

// Quantizes as on the CPU: one scale per row, largest magnitude / 127, rounded to nearest even.
float quantize(const float* from, int64_t count, uint8_t* to) {
  float largest = 0;
  for (int64_t k = 0; k < count; ++k) largest = std::max(largest, std::fabs(from[k]));
  const float scale = largest / 127;
  for (int64_t k = 0; k < count; ++k) {
    const float q = scale > 0 ? std::nearbyint(from[k] / scale) : 0.0f;
    to[k] = uint8_t(kBias + int(std::min(127.0f, std::max(-127.0f, q))));
  }
  return scale;
}

}  // namespace

CudaMatrix::CudaMatrix(Weights kind, const MatrixSource& source)
    : outputs_(source.outputs), depth_(padded_depth(source.inputs)) {
  const int64_t each = kind == Weights::kFloat32 ? 4 : kind == Weights::kBFloat16 ? 2 : 1;
  const bool bytes = kind == Weights::kInt8;
  std::vector<uint8_t> all(size_t(outputs_ * depth_ * each), bytes ? kBias : 0);
  std::vector<float> row(size_t(source.inputs)), scales(size_t(bytes ? outputs_ : 0));
  for (int64_t i = 0; i < outputs_; ++i) {
    uint8_t* to = all.data() + i * depth_ * each;
    if (bytes && source.type == MatrixSource::kInt8) {  // as the file has it
      const auto* from = static_cast<const int8_t*>(source.data) + i * source.row;
      for (int64_t k = 0; k < source.inputs; ++k) to[k] = uint8_t(kBias + from[k * source.column]);
      scales[size_t(i)] = source.scales[i];
      continue;
    }
    read_row(source, i, row.data());
    if (bytes) {
      scales[size_t(i)] = quantize(row.data(), source.inputs, to);
    } else if (kind == Weights::kFloat32) {
      std::memcpy(to, row.data(), row.size() * 4);
    } else {
      for (int64_t k = 0; k < source.inputs; ++k) {
        const bfloat16 x(row[size_t(k)]);
        std::memcpy(to + 2 * k, &x, 2);
      }
    }
  }
  data_ = uploaded(all.data(), int64_t(all.size()));
  scale_ = uploaded(scales.data(), int64_t(scales.size()));
}

}  // namespace tsm::cuda
