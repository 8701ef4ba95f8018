// All that the engine knows of CUDA; it has no header of CUDA's, so that every build has it.
#pragma once
#include <memory>

#include "engine/device/device.h"

namespace tsm {

// The model of `file` on the first CUDA device. tsm::Error where there is none, where this build
// has no CUDA, or where a cell is not among those compiled for it.
std::unique_ptr<Device> make_cuda_device(const ModelFile& file, const StateLayout& layout,
                                         Weights weights);

}  // namespace tsm
