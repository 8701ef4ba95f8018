// Packs a matrix for one instruction set, and encodes rows to multiply it by: a wrapper around
// MatrixKernels.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/aligned.h"
#include "core/buffer_cache.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "kernels/cpu/isa.h"

namespace tsm {

class PackedMatrix {
 public:
  // Packs `source` on the pool's threads. The kernels must store panels one after the other
  // (isa.h).
  PackedMatrix(const MatrixKernels& kernels, const MatrixSource& source, ThreadPool& pool)
      : kernels_(kernels),
        outputs_(source.outputs),
        inputs_(source.inputs),
        packed_(kernels.packed_bytes(source.outputs, source.inputs)) {
    require(!source.columns, "a matrix that is packed in parts has no list of columns");
    const int64_t parts = std::min<int64_t>(panels(), pool.threads());
    const auto begin = [&](int64_t part) {  // the last three panels stay together
      const int64_t panel = std::min(panels() * part / parts, std::max<int64_t>(panels() - 3, 0));
      return part == parts ? outputs_ : panel * kernels_.panel;
    };
    pool.run(parts, [&](int64_t part) {
      const int64_t first = begin(part), last = begin(part + 1);
      if (first == last) return;
      MatrixSource some = source;
      some.outputs = last - first;
      some.data = static_cast<const char*>(source.data) + first * source.row * size_of(source.type);
      if (source.scales) some.scales = source.scales + first;
      const int64_t at = first == 0 ? 0 : kernels_.packed_bytes(first, inputs_);
      kernels_.pack(some, packed_.data() + at);
    });
  }

  int64_t panels() const { return (outputs_ + kernels_.panel - 1) / kernels_.panel; }
  int64_t bytes() const { return packed_.size(); }

  // sums[r, :] += x[r, :] w^T for the outputs of panels [first, last). next: what is read after it.
  void multiply(int64_t rows, const void* x, const Accumulators& sums, int64_t first, int64_t last,
                const Next& next = {}) const {
    kernels_.multiply(packed_.data(), outputs_, inputs_, rows, x, sums, first, last, next);
  }

  // A buffer for rows of activations.
  Aligned<char> rows(int64_t count) const {
    return Aligned<char>(count * encoded_bytes(), Uninitialized());
  }
  int64_t encoded_bytes() const { return kernels_.encoded_bytes(inputs_); }
  void encode(const void* x, void* encoded) const {
    if (inputs_ > 0) kernels_.encode(x, inputs_, encoded);
  }

 private:
  static int64_t size_of(MatrixSource::Type type) {
    switch (type) {
      case MatrixSource::kFloat64:
        return 8;
      case MatrixSource::kFloat32:
        return 4;
      case MatrixSource::kBFloat16:
        return 2;
      case MatrixSource::kInt8:
        return 1;
    }
    return 0;
  }

  const MatrixKernels& kernels_;
  int64_t outputs_, inputs_;
  CachedBuffer packed_;
};

}  // namespace tsm
