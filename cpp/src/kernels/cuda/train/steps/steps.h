// The recurrence step by step, for layers whose U does not fit on the chip, or does not fit well.
//
// A step is one product (products.h), which adds U h to zx, and one kernel for the cell. If z
// is kept for backward, in bfloat16 it is rounded before the cell reads it, so that both see the
// same z; otherwise it is not rounded. Arguments, layouts and results are those of recurrence.h, so
// that forward and backward may run in different ways. A cell without U (weight_h is null) takes
// one launch for all steps.
#pragma once
#include <cstdint>
#include <optional>

#include "kernels/cuda/train/products.h"
#include "kernels/cuda/train/recurrence.h"

namespace tsm {

// The rows of the batch that a block of threads has. With U, gradients of the cell's vectors are
// summed over them: those of a row would be read and written in every step.
constexpr int kStepRows = 4;

// The arguments of one launch of a cell's kernel: of all steps, or of one.
template <class Args>
struct StepsLaunch {
  Args args;  // arrays over time (zx, z, y, saved_states, dt and gradients) begin at the
              // launch's first step; shape and lengths are those of the layer
  int64_t pitch, y_step;  // as in recurrence.h
  int first;              // step
  const float* product;   // forward: U h [B,G*H], to be added to zx; backward: dz U [B,H] of the
                          // step after this one; null: 0
  float* dq;              // backward with U: [Q,B/kStepRows,H], sums over the steps
  uintptr_t stream;
  bool
      early;  // may start while the product runs, and waits for it before reading z. Before that it
              // reads what the launch before the product wrote, which the product has waited for
};

// The kernels of one cell for one element type.
struct StepKernels {
  void (*forward)(const StepsLaunch<RecurrenceForward>&);  // with U: one step
  void (*backward)(const StepsLaunch<RecurrenceBackward>&);
  void (*finish)(const StepsLaunch<RecurrenceBackward>&);      // after step 0
  void (*forward_all)(const StepsLaunch<RecurrenceForward>&);  // without U: all steps
  void (*backward_all)(const StepsLaunch<RecurrenceBackward>&);
};
struct CellStepKernels : CellInfo {
  StepKernels bfloat16, float32;
};

// One direction of a layer; what does not depend on the arrays is looked up once. setup.has_u needs
// cuda::has_products() and, in forward, a y_step that is a multiple of 8.
class Steps {
 public:
  Steps(const CellStepKernels& kernels, const RecurrenceSetup& setup);
  int64_t workspace() const;  // bytes of 16-byte aligned scratch memory; 0 without U
  void forward(const RecurrenceForward& args, void* workspace, uintptr_t stream) const;
  void backward(const RecurrenceBackward& args, void* workspace, uintptr_t stream) const;

 private:
  const RecurrenceSetup setup_;
  const CellStepKernels& kernels_;
  std::optional<cuda::Product> first_, next_;  // of step 0 (forward only), and of the others
};

}  // namespace tsm
