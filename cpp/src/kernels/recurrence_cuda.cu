#include <map>
#include <mutex>
#include <tuple>

#include "cells/all.h"
#include "core/error.h"
#include "kernels/check_cuda.h"
#include "kernels/recurrence_cuda.h"
#include "kernels/recurrence_cuda_launch.h"

namespace tsm {

#define TSM_DECLARE(cell) CellKernels recurrence_cuda_##cell();
TSM_FOR_EACH_CELL(TSM_DECLARE)
#undef TSM_DECLARE

namespace {

using team::Exchange;
using team::Plan;

const CellKernels& kernels_named(const std::string& cell) {
#define TSM_ENTRY(cell) {cells::cell::kName, recurrence_cuda_##cell()},
  static const std::map<std::string, CellKernels> all = {TSM_FOR_EACH_CELL(TSM_ENTRY)};
#undef TSM_ENTRY
  const auto found = all.find(cell);
  require(found != all.end(), "cell '" + cell + "' is not compiled in");
  return found->second;
}

team::Device describe(int device) {
  team::Device d{};
  int bytes = 0;
  cuda::check(cudaDeviceGetAttribute(&d.blocks, cudaDevAttrMultiProcessorCount, device),
              "a property of the device");
  cuda::check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
              "a property of the device");
  cuda::check(cudaDeviceGetAttribute(&d.major, cudaDevAttrComputeCapabilityMajor, device),
              "a property of the device");
  d.shared_bytes = bytes;
  return d;
}

// Each plan is made once.
Plan plan_of(int device, int gates, int64_t B, int64_t H, bool backward) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int, int64_t, int64_t, bool>, Plan> plans;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [entry, fresh] = plans.try_emplace({device, gates, B, H, backward});
  if (fresh) entry->second = team::plan_for(describe(device), {B, H, gates, backward});
  return entry->second;
}

// Launches the teams of a plan over all rows of the batch.
template <class Args>
void run(const Args& args, int64_t pitch, int gates, bool backward,
         void (*kernel)(const TeamLaunch<Args>&), void* workspace, uintptr_t stream) {
  const RecurrenceShape& shape = args.shape;
  require(shape.H % 8 == 0, "H is not a multiple of 8");
  require(pitch >= shape.T, "the pitch is less than T");
  if (shape.B == 0) return;
  int device = 0;
  cuda::check(cudaGetDevice(&device), "no device");
  const Plan plan = plan_of(device, gates, shape.B, shape.H, backward);
  require(plan.members > 0, "the layer does not fit on the chip");
  char* exchange = static_cast<char*>(workspace);
  auto* counters = reinterpret_cast<uint32_t*>(exchange + plan.exchange_bytes());
  for (int64_t row = 0; row < shape.B; row += int64_t(plan.teams) * plan.rows) {
    if (plan.exchange == Exchange::kGrid)
      cuda::check(cudaMemsetAsync(counters, 0, size_t(plan.counter_bytes()), cudaStream_t(stream)),
                  "clearing counters");
    kernel({plan, args, pitch, row, exchange, counters, stream});
  }
}

}  // namespace

int64_t recurrence_cuda_workspace(const std::string& cell, int device, int64_t B, int64_t H,
                                  bool backward) {
  const Plan plan = plan_of(device, kernels_named(cell).gates, B, H, backward);
  return plan.members == 0 ? -1 : plan.exchange_bytes() + plan.counter_bytes();
}

void recurrence_forward_cuda(const std::string& cell, const RecurrenceForward& a, int64_t pitch,
                             void* workspace, uintptr_t stream) {
  const CellKernels& kernels = kernels_named(cell);
  run(a, pitch, kernels.gates, false, kernels.forward, workspace, stream);
}

void recurrence_backward_cuda(const std::string& cell, const RecurrenceBackward& a, int64_t pitch,
                              void* workspace, uintptr_t stream) {
  const CellKernels& kernels = kernels_named(cell);
  run(a, pitch, kernels.gates, true, kernels.backward, workspace, stream);
}

}  // namespace tsm
