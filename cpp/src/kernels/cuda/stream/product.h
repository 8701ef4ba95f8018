// Multiplies rows by a matrix on a GPU: out[r, :] = bias + x[r, :] w^T.
//
// Arrays are on the device. Activations x are float with kFloat32 weights, bfloat16 with the
// others; sums are float. Rows of x and w are padded with zeros to a multiple of kDepthStep
// numbers. Calls are asynchronous on `stream` (a cudaStream_t).
#pragma once
#include <cstdint>

#include "kernels/weights.h"

namespace tsm::cuda {

constexpr int kDepthStep = 64;
constexpr int64_t padded_depth(int64_t n) { return (n + kDepthStep - 1) / kDepthStep * kDepthStep; }

struct Product {
  int64_t rows, outputs;
  int64_t depth;         // padded
  const void* x;         // [.., x_stride]
  int64_t x_stride;      // in numbers
  const int32_t* index;  // [rows] the row of x; null: row r
  const void* w;         // [outputs, depth]: float, bfloat16, or bytes (tensor_cores.cuh)
  const float* scale;    // [outputs] with kInt8
  const float* bias;     // [outputs]; null: the current values of `out`
  float* out;            // [rows, outputs]
};

void product(Weights kind, const Product& product, void* stream);

}  // namespace tsm::cuda
