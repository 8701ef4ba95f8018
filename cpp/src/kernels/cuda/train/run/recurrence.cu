#include <algorithm>
#include <optional>

#include "core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/train/recurrence.h"
#include "kernels/cuda/train/run/plans.h"

namespace tsm {
namespace {

using team::Exchange;
using team::Plan;

// In a CUDA graph, the kernel after a memset begins up to 5 us later than one after a kernel.
__global__ void __launch_bounds__(256) fill_kernel(uint32_t* words, int64_t count, uint32_t value) {
  const int64_t step = int64_t(gridDim.x) * 256;
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < count; i += step) words[i] = value;
}

void fill(void* words, int64_t bytes, uint32_t value, uintptr_t stream) {
  require(bytes % 4 == 0, "what is cleared is not whole words");
  const int64_t count = bytes / 4;
  const unsigned blocks = unsigned(std::clamp<int64_t>(count / 1024, 1, 256));
  fill_kernel<<<blocks, 256, 0, cudaStream_t(stream)>>>(static_cast<uint32_t*>(words), count,
                                                        value);
  cuda::check(cudaGetLastError(), "clearing what is exchanged");
}

// Launches the teams of a plan over all rows of the batch.
template <class Args>
void run_teams(const Args& args, const RecurrenceSetup& setup, const Plan& plan,
               void (*kernel)(const TeamLaunch<Args>&), void* workspace, uintptr_t stream) {
  char* matrix = static_cast<char*>(workspace);
  char* exchange = matrix + plan.matrix_bytes();
  auto* counters = reinterpret_cast<uint32_t*>(exchange + plan.exchange_bytes());
  for (int64_t row = 0; row < setup.B; row += int64_t(plan.teams) * plan.rows) {
    if (plan.marked)  // every word says: not written yet
      fill(exchange, plan.exchange_bytes(), 0xffffffff, stream);
    else if (plan.exchange == Exchange::kGrid)
      fill(counters, plan.counter_bytes(), 0, stream);
    kernel({plan, args, setup.pitch, setup.y_step, row, matrix, exchange, counters, stream});
  }
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

struct RecurrenceCuda::Prepared {
  const RecurrenceSetup setup;
  const Kernels& kernels;
  Plan plan{};
  std::optional<Steps> steps;  // without teams

  explicit Prepared(const RecurrenceSetup& s) : setup(s), kernels(kernels_named(s.cell)) {
    require(s.H % 8 == 0, "H is not a multiple of 8");
    require(s.y_step % 2 == 0 && (s.backward || s.y_step >= s.H),
            "y's steps are odd, or less than H");
    if (s.has_u) {
      plan = plan_in_use(s.device, kernels, layer_shape(kernels, s.dtype, s.B, s.H, s.backward));
      require(plan.members > 0,
              "U does not fit on the chip and cublasLt is not loaded, or there is no code for the "
              "device");
    }
    if (!s.has_u || plan.exchange == Exchange::kSteps) {
      const cuda::DeviceGuard guard(s.device);
      steps.emplace(kernels.steps, s);
    }
  }

  template <class Args>
  void check(const Args& args) const {
    const auto [B, T, H, _] = args.shape;
    require(B == setup.B && H == setup.H && setup.pitch >= T, "another shape than that set up");
    require((args.weight_h != nullptr) == setup.has_u, "weight_h is missing, or not set up");
  }
};

void on_device(int device, const std::function<void()>& work) {
  const cuda::DeviceGuard guard(device);
  work();
}

RecurrenceCuda::RecurrenceCuda(const RecurrenceSetup& setup)
    : prepared_(std::make_unique<const Prepared>(setup)) {}
RecurrenceCuda::~RecurrenceCuda() = default;

int64_t RecurrenceCuda::workspace() const {
  const Prepared& p = *prepared_;
  if (p.steps) return p.steps->workspace();
  return p.plan.matrix_bytes() + p.plan.exchange_bytes() + p.plan.counter_bytes();
}

void RecurrenceCuda::forward(const RecurrenceForward& args, void* workspace,
                             uintptr_t stream) const {
  const Prepared& p = *prepared_;
  p.check(args);
  require((args.z != nullptr) == p.setup.keeps_z, "z is missing, or not set up");
  if (args.shape.B == 0) return;
  if (p.steps) return p.steps->forward(args, workspace, stream);
  run_teams(args, p.setup, p.plan, p.kernels.forward, workspace, stream);
}

void RecurrenceCuda::backward(const RecurrenceBackward& args, void* workspace,
                              uintptr_t stream) const {
  const Prepared& p = *prepared_;
  p.check(args);
  if (args.shape.B == 0) return;
  if (p.steps) return p.steps->backward(args, workspace, stream);
  run_teams(args, p.setup, p.plan, p.kernels.backward, workspace, stream);
}

}  // namespace tsm
