// The interface between run/, which plans and launches, and the files with the kernels of one cell
// each.
#pragma once
#include "kernels/cuda/train/recurrence.h"
#include "kernels/cuda/train/teams/plan.h"

namespace tsm {

// The arguments of a launch.
template <class Args>
struct TeamLaunch {
  team::Plan plan;
  Args args;
  int64_t pitch;       // steps from row to row
  int64_t y_step;      // elements from step to step of y, or of its gradient
  int64_t first_row;   // of the batch
  char* matrix;        // plan.matrix_bytes()
  char* exchange;      // plan.exchange_bytes()
  uint32_t* counters;  // plan.counter_bytes(), zeros
  uintptr_t stream;
};

// One cell's kernels. `forward` and `backward` throw on CUDA errors.
struct CellKernels : CellInfo {
  void (*forward)(const TeamLaunch<RecurrenceForward>&);
  void (*backward)(const TeamLaunch<RecurrenceBackward>&);
  // Whether the current device can run the plan's clusters: not every device allows 16 blocks.
  bool (*can_launch)(const team::Plan& plan, bool backward);
  // The compute capability that the current device's code was compiled for, times 10; 0 if this
  // build has none for the device.
  int (*compiled_for)();
};

}  // namespace tsm
