// The gradient of a table of embeddings, on a GPU.
#pragma once
#include <cstdint>

namespace tsm::cuda {

constexpr int64_t kMostTokens = 3072;  // 12 bytes each in shared memory: 36 KB of 48

struct EmbeddingGradient {
  const void* tokens;    // [count], contiguous; those that are not in the table are left out
  bool wide;             // tokens are int64, or else int32
  int64_t count;         // of tokens, at most kMostTokens
  int64_t rows, width;   // of the table, at least 1
  const float* grad;     // [count][width], contiguous
  const float* factors;  // [rows], or null: 1
};

// out [rows][width] = factors[row] times the sum of the rows of grad that have the row's token,
// added in the order of their positions. Asynchronous on `stream`, of the current device.
void embedding_gradient(const EmbeddingGradient& given, float* out, uintptr_t stream);

}  // namespace tsm::cuda
