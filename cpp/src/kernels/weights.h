// Kinds of weights, and a view of a matrix in its owner's memory.
#pragma once
#include <cstdint>

namespace tsm {

// How the numbers of a matrix are stored. It also sets the precision of the activations: with
// kBFloat16 they are rounded to bfloat16, with kInt8 to 8 bits with one scale per row (largest
// magnitude / 127, nearest even). Sums, states and element-wise operations are float (double with
// kFloat64, which only the base instruction set supports).
enum class Weights { kFloat32, kBFloat16, kInt8, kFloat64 };
constexpr int kWeightsKinds = 4;

// A matrix w [outputs, inputs] in memory: w[i,j] = data[i*row + j*column]; with `columns`, it is
// columns[j][i], and row is 1.
struct MatrixSource {
  enum Type { kFloat32, kFloat64, kBFloat16, kInt8 } type;
  const void* data;
  int64_t outputs, inputs, row, column;
  const float* scales;  // [outputs] with kInt8: w[i,j] = scales[i] * data; else null
  const void* const* columns = nullptr;  // [inputs]
};

}  // namespace tsm
