#include "engine/cuda/device.h"

#include <cstring>

#include "core/bfloat16.h"
#include "core/error.h"
#include "engine/cuda/feed.h"
#include "engine/cuda/make_device.h"
#include "engine/file/matrix_row.h"
#include "kernels/cuda/device_guard.h"

namespace tsm::cuda {
namespace {

constexpr int kOrdinal = 0;  // CUDA_VISIBLE_DEVICES selects the device

void require_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    throw Error(
        "device = 'cuda': no CUDA device (" +
        std::string(status == cudaSuccess ? "the driver lists none" : cudaGetErrorString(status)) +
        "); accepted: cpu");
  }
}

cudaDeviceProp usable_device() {
  cudaDeviceProp found{};
  check(cudaGetDeviceProperties(&found, kOrdinal), "the device");
  if (found.major < 8 || !found.cooperativeLaunch)
    throw Error("device = 'cuda': " + std::string(found.name) + " has compute capability " +
                std::to_string(found.major) + "." + std::to_string(found.minor) +
                "; accepted: 8.0 or higher");
  return found;
}

}  // namespace

CudaDevice::CudaDevice(const ModelFile& file, const StateLayout& layout, Weights kind)
    : config_(file.config()), kind_(kind), floats_(layout.floats), pool_(2 * layout.floats) {
  require_device();
  const DeviceGuard guard(kOrdinal);
  const cudaDeviceProp device = usable_device();
  name_ = "sm_" + std::to_string(device.major) + std::to_string(device.minor);
  const Chip chip{device.multiProcessorCount, int(device.sharedMemPerBlockOptin),
                  device.major == 9 && device.minor == 0};
  for (int64_t i = 0; i < int64_t(config_.layers.size()); ++i)
    layers_.emplace_back(file, i, layout.at[size_t(i)], kind, chip);
  if (config_.input == Config::Input::kTokens) {
    const MatrixSource table = file.matrix("embedding", config_.vocab_size, config_.input_width);
    // The rows are activations and are rounded as such, not as weights.
    const bool exact = kind == Weights::kFloat32;
    embedding_stride_ = padded_depth(config_.input_width);
    std::vector<char> rows(size_t(config_.vocab_size * embedding_stride_ * (exact ? 4 : 2)));
    std::vector<float> row(size_t(config_.input_width));
    for (int64_t i = 0; i < config_.vocab_size; ++i) {
      read_row(table, i, row.data());
      for (int64_t k = 0; k < config_.input_width; ++k) {
        const int64_t at = i * embedding_stride_ + k;
        const bfloat16 rounded(row[size_t(k)]);
        exact ? std::memcpy(rows.data() + at * 4, &row[size_t(k)], 4)
              : std::memcpy(rows.data() + at * 2, &rounded, 2);
      }
    }
    embedding_ = uploaded(rows.data(), int64_t(rows.size()));
  }
  head_ = std::make_unique<CudaHead>(file, kind);
}

int64_t CudaDevice::weight_bytes() const {
  int64_t total = head_->bytes() + embedding_.bytes();
  for (const CudaLayer& layer : layers_) total += layer.bytes();
  return total;
}

Slot CudaDevice::create() {
  const DeviceGuard guard(kOrdinal);
  const SlotPool::Block block = pool_.take();
  const Slot slot{block.memory, 0};
  try {
    if (block.used) clear(slot);
  } catch (...) {
    pool_.give(block.memory);
    throw;
  }
  return slot;
}

void CudaDevice::release(const Slot& slot) noexcept { pool_.give(slot.memory); }

void CudaDevice::clear(const Slot& slot) {
  const DeviceGuard guard(kOrdinal);
  const Lease<CudaWorkspace> workspace(workspaces_);
  const Queue& queue = (*workspace).queue;
  check(cudaMemsetAsync(current(slot), 0, state_bytes(), queue), "clearing memory");
  queue.wait();
}

void CudaDevice::copy(const Slot& from, const Slot& to) {
  const DeviceGuard guard(kOrdinal);
  const Lease<CudaWorkspace> workspace(workspaces_);
  const Queue& queue = (*workspace).queue;
  check(cudaMemcpyAsync(current(to), current(from), state_bytes(), cudaMemcpyDeviceToDevice, queue),
        "copying states");
  queue.wait();
}

void CudaDevice::read(const Slot* const* slots, int64_t count, float* states) const {
  const DeviceGuard guard(kOrdinal);
  const Lease<CudaWorkspace> workspace(workspaces_);
  const Queue& queue = (*workspace).queue;
  for (int64_t i = 0, next; i < count; i = next) {
    // Slots created one after the other are neighbours in memory: one copy for all of them.
    const float* const from = current(*slots[i]);
    for (next = i + 1; next < count; ++next)
      if (current(*slots[next]) != from + (next - i) * 2 * floats_) break;
    check(cudaMemcpy2DAsync(states + i * floats_, state_bytes(), from, size_t(slot_bytes()),
                            state_bytes(), size_t(next - i), cudaMemcpyDeviceToHost, queue),
          "reading states");
  }
  queue.wait();
}

void CudaDevice::write(const Slot& slot, const float* states) {
  const DeviceGuard guard(kOrdinal);
  const Lease<CudaWorkspace> workspace(workspaces_);
  const Queue& queue = (*workspace).queue;
  check(cudaMemcpyAsync(current(slot), states, state_bytes(), cudaMemcpyHostToDevice, queue),
        "writing states");
  queue.wait();
}

NotFinite CudaDevice::feed(const Chunk* chunks, const int64_t* order, Slot* const* slots,
                           int64_t count, Cancel* cancel, bool keep) {
  const DeviceGuard guard(kOrdinal);
  const Lease<CudaWorkspace> workspace(workspaces_);
  try {
    const NotFinite bad = CudaFeed(*this, *workspace, chunks, order, slots, count, cancel).run();
    while (count > 0 && chunks[order[count - 1]].steps == 0) --count;  // nothing was fed to those
    for (int64_t i = 0; i < count && keep && bad.layer < 0; ++i)
      slots[i]->current = 1 - slots[i]->current;
    return bad;
  } catch (...) {
    cudaStreamSynchronize(
        (*workspace).queue);  // nothing may still use the workspace when the next call gets it
    throw;
  }
}

}  // namespace tsm::cuda

namespace tsm {

std::unique_ptr<Device> make_cuda_device(const ModelFile& file, const StateLayout& layout,
                                         Weights weights) {
  return std::make_unique<cuda::CudaDevice>(file, layout, weights);
}

}  // namespace tsm
