// Between recurrence.cu, which plans, and the units that hold one cell's kernels each.
#pragma once
#include "kernels/cuda/train/plan.h"
#include "kernels/cuda/train/recurrence.h"

namespace tsm {

// Where a launch of a plan finds its arguments.
template <class Args>
struct TeamLaunch {
  team::Plan plan;
  Args args;
  int64_t pitch;       // steps from row to row
  int64_t y_step;      // numbers from step to step of y, or of its gradient
  int64_t first_row;   // of the batch
  char* exchange;      // plan.exchange_bytes()
  uint32_t* counters;  // plan.counter_bytes(), zeros
  uintptr_t stream;
};

// One cell's kernels. The first two throw where CUDA refuses.
struct CellKernels : CellInfo {
  void (*forward)(const TeamLaunch<RecurrenceForward>&);
  void (*backward)(const TeamLaunch<RecurrenceBackward>&);
  // Whether the current device has room for the plan's clusters: not each can have 16 blocks.
  bool (*can_launch)(const team::Plan& plan, bool backward);
};

}  // namespace tsm
