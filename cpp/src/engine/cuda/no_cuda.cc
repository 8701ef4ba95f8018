// Replaces device.cc if there is no CUDA compiler, and in the static library.
#include "core/error.h"
#include "engine/cuda/make_device.h"

namespace tsm {

std::unique_ptr<Device> make_cuda_device(const ModelFile&, const StateLayout&, Weights) {
  throw Error("device = 'cuda': this build has no CUDA (TSM_CUDA=OFF); accepted: cpu");
}

}  // namespace tsm
