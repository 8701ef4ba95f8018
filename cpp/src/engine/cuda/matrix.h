// A matrix of a model file on the device, in the layout of kernels/cuda/stream/product.h.
#pragma once
#include "engine/cuda/memory.h"
#include "kernels/weights.h"

namespace tsm::cuda {

class CudaMatrix {
 public:
  CudaMatrix() = default;
  CudaMatrix(Weights kind, const MatrixSource& source);

  const void* data() const { return data_.data(); }
  const float* scale() const { return scale_.data(); }
  int64_t outputs() const { return outputs_; }
  int64_t depth() const { return depth_; }  // padded
  int64_t bytes() const { return data_.bytes() + scale_.bytes(); }

 private:
  int64_t outputs_ = 0, depth_ = 0;
  DeviceArray<uint8_t> data_;
  DeviceArray<float> scale_;
};

}  // namespace tsm::cuda
