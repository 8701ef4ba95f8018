// A cell's values per unit on a GPU: from learned raw vectors, and the gradients back to them.
#pragma once
#include <cstdint>

namespace tsm::cuda {

enum class Link : int32_t { kIdentity, kSigmoid, kExp };

struct RawVector {
  const void* raw;
  bool is_float;  // or else bfloat16
  int64_t step;   // elements from one unit to the next
  Link link;
};

constexpr int kMaxVectors = 16;

// values [count][pitch] = link(raw), rounded to bfloat16 if raw is; 1 from `units` on. Both
// functions are asynchronous on `stream`, and take 1 to kMaxVectors vectors.
void link_vectors(const RawVector* vectors, int count, int64_t units, int64_t pitch, float* values,
                  uintptr_t stream);

// The gradients of the values, for each row of the batch, and what becomes of them.
struct VectorGradients {
  const float* by_row;  // [count][rows][pitch]
  const float* values;  // [count][pitch]
  float* of_raw;        // [count][units]: link'(raw) times the sum over the rows
  int64_t rows, units, pitch;
};
void vector_gradients(const VectorGradients& given, const Link* links, int count, uintptr_t stream);

}  // namespace tsm::cuda
