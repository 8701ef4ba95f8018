// A cell's kernels of steps.h, and how one of them is launched.
#pragma once
#include <algorithm>
#include <type_traits>

#include "core/error.h"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/train/steps/backward.cuh"
#include "kernels/cuda/train/steps/forward.cuh"

namespace tsm::team {

template <class Cell, class Args>
void launch_steps(void (*kernel)(StepsLaunch<Args>, Strides, Constants<Cell>), int units,
                  const StepsLaunch<Args>& launch) {
  const RecurrenceShape& shape = launch.args.shape;
  constexpr bool kBackward = std::is_same_v<Args, RecurrenceBackward>;
  Constants<Cell> k{};
  for (int i = 0; i < Cell::kConstants; ++i) k.value[i] = float(launch.args.constants[i]);
  const auto parts = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
  const int64_t groups = parts(shape.B, kStepRows), across = parts(shape.H, 32 * units);
  require(shape.B < (int64_t(1) << 31) && shape.H < (int64_t(1) << 31), "the batch is too large");
  const dim3 blocks(unsigned(across), unsigned(std::min(groups, kMostGroups)),
                    unsigned(parts(groups, kMostGroups)));
  cuda::launch(kernel, blocks, kStepThreads, 0, launch.stream, launch.early, launch,
               Strides(launch, Cell::kGates, kBackward), k);
}

// Whether threads with four units each are enough to fill a device.
inline bool is_large(const RecurrenceShape& shape) { return shape.B * shape.H >= int64_t(1) << 17; }

// In float a thread always has two units: there, the products take most of the time.
template <class Cell, class D>
StepKernels step_kernels() {
  using Forward = StepsLaunch<RecurrenceForward>;
  using Backward = StepsLaunch<RecurrenceBackward>;
  constexpr int kMost = sizeof(D) == 2 ? 4 : 2;
  return {[](const Forward& l) {
            if (is_large(l.args.shape))
              launch_steps<Cell>(step_forward_kernel<Cell, D, kMost>, kMost, l);
            else
              launch_steps<Cell>(step_forward_kernel<Cell, D, 2>, 2, l);
          },
          [](const Backward& l) {
            if (is_large(l.args.shape))
              launch_steps<Cell>(step_backward_kernel<Cell, D, kMost>, kMost, l);
            else
              launch_steps<Cell>(step_backward_kernel<Cell, D, 2>, 2, l);
          },
          [](const Backward& l) { launch_steps<Cell>(steps_finish_kernel<Cell, D>, 2, l); },
          [](const Forward& l) { launch_steps<Cell>(steps_forward_kernel<Cell, D>, 2, l); },
          [](const Backward& l) { launch_steps<Cell>(steps_backward_kernel<Cell, D>, 2, l); }};
}

template <class Cell>
CellStepKernels all_step_kernels() {
  return {CellInfo::of<Cell>(), step_kernels<Cell, bf16>(), step_kernels<Cell, float>()};
}

}  // namespace tsm::team
