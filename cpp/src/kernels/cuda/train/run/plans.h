// The kernels of a cell, and the plan that a layer gets on a device.
#pragma once
#include <string>

#include "kernels/cuda/train/steps/steps.h"
#include "kernels/cuda/train/teams/launch.h"

namespace tsm {

struct Kernels : CellKernels {
  CellStepKernels steps;
};

// Throws if the cell is not compiled in.
const Kernels& kernels_named(const std::string& cell);

// A layer for the planner. Throws if the dtype has no kernels.
team::LayerShape layer_shape(const CellKernels& kernels, DType dtype, int64_t B, int64_t H,
                             bool backward);

// The plan in use; made with the first call.
team::Plan plan_in_use(int device, const CellKernels& kernels, const team::LayerShape& layer);

}  // namespace tsm
