// Many small copies in one launch: inputs of a layer to the layout of its kernels, gradients back.
#pragma once
#include <cstdint>

namespace tsm::cuda {

// to [size] = from [inside], and `fill` where `to` is larger. Both are float or bfloat16. With a
// mask [inside]: from x scale where its bytes are not 0, from x 0 elsewhere, in float.
struct StridedCopy {
  const void* from;  // null: only fill
  void* to;
  bool from_float, to_float;
  float fill;
  int32_t size[3], inside[3];
  int64_t from_step[3], to_step[3], mask_step[3];  // elements from one index to the next
  const uint8_t* mask;                             // null: none
  float scale;
};

constexpr int kMaxStridedCopies = 12;

// Asynchronous on `stream`. No two copies may write to the same location.
void copy_strided(const StridedCopy* copies, int count, uintptr_t stream);

}  // namespace tsm::cuda
