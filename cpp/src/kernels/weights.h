// Kinds of weights, and a matrix of them as its owner keeps it.
#pragma once
#include <cstdint>

namespace tsm {

// How the numbers of a matrix are kept. Activations follow: with kBFloat16 they are rounded to
// bfloat16, with kInt8 to 8 bits with one scale per row (largest magnitude / 127, nearest even).
// Sums, states and everything element-wise are float (double with kFloat64, which only the base
// instruction set has).
enum class Weights { kFloat32, kBFloat16, kInt8, kFloat64 };
constexpr int kWeightsKinds = 4;

// Where the numbers of a matrix w [outputs, inputs] come from: w[i,j] = data[i*row + j*column].
struct MatrixSource {
  enum Type { kFloat32, kFloat64, kBFloat16, kInt8 } type;
  const void* data;
  int64_t outputs, inputs, row, column;
  const float* scales;  // [outputs] with kInt8: w[i,j] = scales[i] * data; else null
};

}  // namespace tsm
