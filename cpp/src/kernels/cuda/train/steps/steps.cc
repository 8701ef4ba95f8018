#include "kernels/cuda/train/steps/steps.h"

#include <algorithm>
#include <type_traits>

#include "core/error.h"
#include "kernels/cuda/train/strided_copies.h"

namespace tsm {

namespace {

using cuda::Product;
using cuda::ProductShape;

int64_t bytes_of(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// Offsets in the workspace, in bytes.
struct Scratch {
  int64_t product = 0, second, products;  // U h or P; the first h as D, or dq; cublasLt's own

  Scratch(const CellInfo& cell, DType dtype, int64_t B, int64_t H, bool backward) {
    const auto rounded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
    second = rounded(B * H * 4 * (backward ? 1 : cell.gates));
    const int64_t h = dtype == DType::kFloat32 ? 0 : B * H * bytes_of(dtype);
    const int64_t groups = (B + kStepRows - 1) / kStepRows;
    products = second + rounded(backward ? groups * H * 4 * cell.prepared : h);
  }
};

// The array from a later step on; null stays null.
template <class T>
T* later(T* array, int64_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return array ? static_cast<Byte*>(array) + elements * bytes_of(dtype) : nullptr;
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

Steps::Steps(const CellStepKernels& kernels, const RecurrenceSetup& s)
    : setup_(s), kernels_(kernels) {
  if (!s.has_u) return;
  const int64_t width = kernels_.gates * s.H;
  if (s.backward) {
    next_.emplace(ProductShape{s.B, s.H, width, s.pitch * width, s.H, s.H, false, false, s.dtype,
                               DType::kFloat32, s.tf32});
    return;
  }
  require(s.y_step % 8 == 0, "y's steps are not a multiple of 8");
  ProductShape shape{s.B,     width,
                     s.H,     s.H,
                     s.H,     s.keeps_z ? s.pitch * width : width,
                     false,   true,
                     s.dtype, s.keeps_z ? s.dtype : DType::kFloat32,
                     s.tf32};
  first_.emplace(shape);
  shape.x_step = s.pitch * s.y_step;
  next_.emplace(shape);
}

int64_t Steps::workspace() const {
  if (!setup_.has_u) return 0;
  const int64_t first = first_ ? first_->workspace() : 0;
  return Scratch(kernels_, setup_.dtype, setup_.B, setup_.H, setup_.backward).products +
         std::max(first, next_->workspace());
}

void Steps::forward(const RecurrenceForward& a, void* workspace, uintptr_t stream) const {
  const DType dtype = setup_.dtype;
  const int64_t B = setup_.B, H = setup_.H, pitch = setup_.pitch, y_step = setup_.y_step;
  const StepKernels& own = dtype == DType::kFloat32 ? kernels_.float32 : kernels_.bfloat16;
  const int64_t T = a.shape.T;
  StepsLaunch<RecurrenceForward> step{a, pitch, y_step, 0, nullptr, nullptr, stream, false};
  if (!setup_.has_u || T == 0) return own.forward_all(step);
  const Scratch at(kernels_, dtype, B, H, false);
  char* const scratch = static_cast<char*>(workspace);
  const void* h = first_h(a, dtype, scratch + at.second, stream);
  const int64_t width = kernels_.gates * H;
  // If z is kept, the product adds zx and writes z.
  if (!a.z) step.product = reinterpret_cast<const float*>(scratch + at.product);
  step.early = true;
  for (int t = 0; t < int(T); ++t) {
    const void* const zx = later(a.zx, t * width, dtype);
    void* const out = a.z ? later(a.z, t * width, dtype) : scratch + at.product;
    (t == 0 ? first_ : next_)
        ->run(h, a.weight_h, a.z ? zx : nullptr, out, scratch + at.products, stream);
    step.first = t;
    step.args.zx = a.z ? out : zx;
    step.args.y = later(a.y, t * y_step, dtype);
    step.args.dt = later(a.dt, t, DType::kFloat32);
    step.args.saved_states = later(a.saved_states, t * H, DType::kFloat32);
    own.forward(step);
    h = step.args.y;
  }
}

void Steps::backward(const RecurrenceBackward& a, void* workspace, uintptr_t stream) const {
  const DType dtype = setup_.dtype;
  const int64_t B = setup_.B, H = setup_.H, pitch = setup_.pitch, y_step = setup_.y_step;
  const StepKernels& own = dtype == DType::kFloat32 ? kernels_.float32 : kernels_.bfloat16;
  const int64_t T = a.shape.T;
  StepsLaunch<RecurrenceBackward> step{a, pitch, y_step, 0, nullptr, nullptr, stream, false};
  if (!setup_.has_u || T == 0) return own.backward_all(step);
  const Scratch at(kernels_, dtype, B, H, true);
  char* const scratch = static_cast<char*>(workspace);
  auto* const product = reinterpret_cast<float*>(scratch + at.product);
  step.dq = reinterpret_cast<float*>(scratch + at.second);
  const int64_t width = kernels_.gates * H;
  for (int t = int(T) - 1; t >= 0; --t) {
    step.first = t;
    step.args.z = later(a.z, t * width, dtype);
    step.args.grad_z = later(a.grad_z, t * width, dtype);
    step.args.grad_y = later(a.grad_y, t * y_step, dtype);
    step.args.dt = later(a.dt, t, DType::kFloat32);
    step.args.saved_states = later(a.saved_states, t * H, DType::kFloat32);
    own.backward(step);
    next_->run(step.args.grad_z, a.weight_h, nullptr, product, scratch + at.products, stream);
    step.product = product;
    step.early = true;
  }
  own.finish(step);
}

}  // namespace tsm
