// The engine's only link to CUDA. It includes no CUDA header, so that every build can use it.
#pragma once
#include <memory>

#include "engine/device/device.h"

namespace tsm {

// Loads the model of `file` onto the first CUDA device. Throws tsm::Error if there is no device, if
// this build has no CUDA, or if a cell is not compiled for it.
std::unique_ptr<Device> make_cuda_device(const ModelFile& file, const StateLayout& layout,
                                         Weights weights);

}  // namespace tsm
