#include "kernels/cuda/train/steps.h"

#include <type_traits>

#include "core/error.h"
#include "kernels/cuda/train/products.h"
#include "kernels/cuda/train/strided_copies.h"

namespace tsm {

namespace {

using cuda::Product;
using cuda::ProductShape;

int64_t bytes_of(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// Offsets in the workspace, in bytes.
struct Scratch {
  int64_t product = 0, second, products, end;  // second: the first h as D, or dq

  Scratch(const CellInfo& cell, DType dtype, int64_t B, int64_t H, bool backward) {
    const auto rounded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
    second = rounded(B * H * 4 * (backward ? 1 : cell.gates));
    const int64_t h = dtype == DType::kFloat32 ? 0 : B * H * bytes_of(dtype);
    products = second + rounded(backward ? B * H * 4 * cell.prepared : h);
    end = products + Product::kWorkspace;
  }
};

template <class T>
T* later(T* array, int64_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<Byte*>(array) + elements * bytes_of(dtype);
}

// The h before the first step in the type of U: `state`, or a copy of it.
const void* first_h(const RecurrenceForward& a, DType dtype, void* copy, uintptr_t stream) {
  if (dtype == DType::kFloat32) return a.state;
  cuda::StridedCopy p{};
  p.from = a.state;
  p.to = copy;
  p.from_float = true;
  p.size[0] = p.inside[0] = 1;
  p.size[1] = p.inside[1] = int32_t(a.shape.B);
  p.size[2] = p.inside[2] = int32_t(a.shape.H);
  p.from_step[1] = p.to_step[1] = a.shape.H;
  p.from_step[2] = p.to_step[2] = 1;
  cuda::copy_strided(&p, 1, stream);
  return copy;
}

}  // namespace

int64_t steps_workspace(const CellInfo& cell, DType dtype, int64_t B, int64_t H, bool backward) {
  return Scratch(cell, dtype, B, H, backward).end;
}

void steps_forward(const CellStepKernels& kernels, DType dtype, const RecurrenceForward& a,
                   int64_t pitch, int64_t y_step, bool tf32, void* workspace, uintptr_t stream) {
  const auto launch = dtype == DType::kFloat32 ? kernels.float32.forward : kernels.bfloat16.forward;
  const auto [B, T, H, _] = a.shape;
  StepsLaunch<RecurrenceForward> step{a, pitch, y_step, 0, int(T), nullptr, nullptr, stream, false};
  if (!a.weight_h || T == 0) return launch(step);
  require(y_step % 8 == 0, "y's steps are not a multiple of 8");
  const Scratch at(kernels, dtype, B, H, false);
  char* const scratch = static_cast<char*>(workspace);
  const void* h = first_h(a, dtype, scratch + at.second, stream);
  const int64_t width = kernels.gates * H;
  ProductShape shape{B, width, H, H, width, true, dtype, DType::kFloat32, tf32};
  if (a.z) {  // the product writes z
    shape.out = dtype;
    shape.out_step = pitch * width;
    step.args.zx = a.z;
    step.args.z = nullptr;
  } else {
    step.product = reinterpret_cast<const float*>(scratch + at.product);
  }
  step.early = true;
  const Product first(shape);
  shape.x_step = pitch * y_step;
  const Product next(shape);
  for (int t = 0; t < int(T); ++t) {
    const void* const added = a.z ? later(a.zx, t * width, dtype) : nullptr;
    void* const out = a.z ? later(a.z, t * width, dtype) : scratch + at.product;
    (t == 0 ? first : next).run(h, a.weight_h, added, out, scratch + at.products, stream);
    step.first = t;
    step.end = t + 1;
    launch(step);
    h = later(a.y, t * y_step, dtype);
  }
}

void steps_backward(const CellStepKernels& kernels, DType dtype, const RecurrenceBackward& a,
                    int64_t pitch, int64_t y_step, bool tf32, void* workspace, uintptr_t stream) {
  const StepKernels& own = dtype == DType::kFloat32 ? kernels.float32 : kernels.bfloat16;
  const auto [B, T, H, _] = a.shape;
  StepsLaunch<RecurrenceBackward> step{a,       pitch,   y_step, 0,    int(T),
                                       nullptr, nullptr, stream, false};
  if (!a.weight_h || T == 0) return own.backward(step);
  const Scratch at(kernels, dtype, B, H, true);
  char* const scratch = static_cast<char*>(workspace);
  auto* const product = reinterpret_cast<float*>(scratch + at.product);
  step.dq = reinterpret_cast<float*>(scratch + at.second);
  const int64_t width = kernels.gates * H;
  const Product multiply({B, H, width, pitch * width, H, false, dtype, DType::kFloat32, tf32});
  for (int t = int(T) - 1; t >= 0; --t) {
    step.first = t;
    step.end = t + 1;
    own.backward(step);
    multiply.run(later(a.grad_z, t * width, dtype), a.weight_h, nullptr, product,
                 scratch + at.products, stream);
    step.product = product;
    step.early = true;
  }
  step.end = 0;
  own.finish(step);
}

}  // namespace tsm
