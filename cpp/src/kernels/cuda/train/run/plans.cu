#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>

#include "cells/generated/all.h"
#include "core/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device_guard.h"
#include "kernels/cuda/train/products.h"
#include "kernels/cuda/train/recurrence.h"
#include "kernels/cuda/train/run/plans.h"

namespace tsm {

#define TSM_DECLARE(cell)               \
  CellKernels recurrence_cuda_##cell(); \
  CellStepKernels steps_cuda_##cell();
TSM_FOR_EACH_CELL(TSM_DECLARE)
#undef TSM_DECLARE

namespace {

using team::Exchange;
using team::Plan;

// The device that plans are made for, if not the real one. Tests change it while nothing else runs.
std::string& pretended_device() {
  static std::string like = [] {
    const char* given = std::getenv("TSM_CUDA_PRETEND");
    return std::string(given ? given : "");
  }();
  return like;
}

// What a device has for the kernels of a cell.
team::Device describe(int device, const CellKernels& kernels) {
  const cuda::DeviceGuard guard(device);
  const auto property = [&](cudaDeviceAttr name) {
    int value = 0;
    cuda::check(cudaDeviceGetAttribute(&value, name, device), "a property of the device");
    return value;
  };
  team::Device d{};
  d.blocks = property(cudaDevAttrMultiProcessorCount);
  d.shared_bytes = property(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  d.major = property(cudaDevAttrComputeCapabilityMajor);
  d.minor = property(cudaDevAttrComputeCapabilityMinor);
  d.largest_cluster = 16;
  d.products = cuda::has_products();
  const int code = kernels.compiled_for();
  if (d.hopper() && code < 90) d.major = 8;  // PTX for an older device
  const std::string& like = pretended_device();
  if (!like.empty()) d = team::pretended(d, like);
  if (code == 0) d.major = 0;
  return d;
}

bool can_launch(const CellKernels& kernels, const Plan& plan, bool backward) {
  return plan.exchange == Exchange::kSteps || kernels.can_launch(plan, backward);
}

// The best plan that the device can launch.
Plan made_plan(int at, const CellKernels& kernels, const team::LayerShape& layer) {
  const cuda::DeviceGuard guard(at);
  team::Device device = describe(at, kernels);
  Plan plan = team::plan_for(device, layer);
  while (plan.members > 0 && !can_launch(kernels, plan, layer.backward)) {
    if (plan.cut > 1)
      device.largest_cut = plan.cut - 1;
    else
      device.largest_cluster = plan.members - 1;
    plan = team::plan_for(device, layer);
  }
  return plan;
}

// The plans in use. Each is made once.
class Plans {
 public:
  Plan of(int device, const CellKernels& kernels, const team::LayerShape& layer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Key wanted = key(device, kernels, layer);
    auto entry = made_.find(wanted);
    if (entry == made_.end()) {
      entry = made_.emplace(wanted, made_plan(device, kernels, layer)).first;
    }
    return entry->second;
  }
  void set(int device, const CellKernels& kernels, const team::LayerShape& layer,
           const Plan& plan) {
    const std::lock_guard<std::mutex> lock(mutex_);
    made_[key(device, kernels, layer)] = plan;
    ++version_;
  }
  void pretend(const std::string& like) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!like.empty()) team::pretended({132, 232448, 9, 16}, like);  // throws if it is not accepted
    pretended_device() = like;
    made_.clear();
    ++version_;
  }
  int64_t version() const { return version_; }

 private:
  using Key = std::tuple<int, std::string, int, int64_t, int64_t, bool>;
  static Key key(int device, const CellKernels& kernels, const team::LayerShape& layer) {
    return {device, kernels.name, layer.number_bytes, layer.B, layer.H, layer.backward};
  }

  std::mutex mutex_;
  std::map<Key, Plan> made_;
  std::atomic<int64_t> version_{0};
};

Plans& plans() {
  static Plans all;
  return all;
}

std::string in_words(const Plan& p) {
  if (p.exchange == Exchange::kSteps) return "steps";
  constexpr const char* kExchanges[] = {"alone", "cluster", "grid"};
  const auto n = [](int number) { return std::to_string(number); };
  const std::string streamed = p.streamed == 0
                                   ? ""
                                   : ", streamed " + n(p.streamed) + " of " +
                                         n(p.held + p.resident + p.streamed) + " in " + n(p.slots) +
                                         ", kept " + n(p.kept) + ", in registers " + n(p.held);
  if (p.exchange == Exchange::kRegisters)
    return "registers 1 x " + n(p.teams) + ", units " + n(p.units) + ", rows " + n(p.rows) +
           ", warps " + n(p.workers) + ", k " + n(p.slice_blocks * team::kTile) + ", shared KB " +
           n(p.shared_bytes >> 10);
  const bool copied = p.exchange == Exchange::kGrid && !p.bulk;
  return std::string(kExchanges[int(p.exchange)]) + (copied ? " without bulk copies " : " ") +
         n(p.members) + " x " + n(p.teams) + ", units " + n(p.units) + ", rows " + n(p.rows) +
         ", warps " + n(p.jobs()) + " / " + n(p.workers) + ", row tiles " + n(p.row_tiles) +
         ", splits " + n(p.splits) + " in " + n(p.parts) + ", chunks " + n(p.chunks) + " in " +
         n(p.stages) + (copied ? " by " + n(p.producers) : "") + (p.marked ? " marked" : "") +
         (p.cut > 1 ? ", cut " + n(p.cut) : "") + streamed + ", shared KB " +
         n(p.shared_bytes >> 10);
}

}  // namespace

const Kernels& kernels_named(const std::string& cell) {
#define TSM_ENTRY(cell) {cells::cell::kName, {recurrence_cuda_##cell(), steps_cuda_##cell()}},
  static const std::map<std::string, Kernels> all = {TSM_FOR_EACH_CELL(TSM_ENTRY)};
#undef TSM_ENTRY
  const auto found = all.find(cell);
  require(found != all.end(), "cell '" + cell + "' is not compiled in");
  return found->second;
}

team::LayerShape layer_shape(const CellKernels& kernels, DType dtype, int64_t B, int64_t H,
                             bool backward) {
  require(dtype != DType::kFloat64, "dtype float64 has no kernel on cuda");
  return {B, H, kernels.gates, backward, dtype == DType::kFloat32 ? 4 : 2};
}

team::Plan plan_in_use(int device, const CellKernels& kernels, const team::LayerShape& layer) {
  return plans().of(device, kernels, layer);
}

PlanInWords recurrence_cuda_plan(const std::string& cell, DType dtype, int device, int64_t B,
                                 int64_t H, bool backward) {
  const CellKernels& kernels = kernels_named(cell);
  const team::LayerShape layer = layer_shape(kernels, dtype, B, H, backward);
  const Plan plan = plans().of(device, kernels, layer);
  if (plan.members == 0) return {"", 0};
  int clock = 0;  // kHz
  cuda::check(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, device),
              "a property of the device");
  return {in_words(plan), team::estimate(describe(device, kernels), layer, plan) / clock * 1e3};
}

std::string recurrence_cuda_path(int device) {
  const team::Device d = describe(device, kernels_named("plstm"));  // all cells are built alike
  if (d.major == 0) return "";
  const std::string& like = pretended_device();
  return std::to_string(d.blocks) + " multiprocessors, " + std::to_string(d.shared_bytes >> 10) +
         " KB: " + team::path_in_words(d) +
         (like.empty() ? "" : " (pretending to be " + like + ")");
}

void recurrence_cuda_pretend(const std::string& like) { plans().pretend(like); }

std::string recurrence_cuda_take_plan(const std::string& cell, DType dtype, int device, int64_t B,
                                      int64_t H, bool backward, int rank) {
  const CellKernels& kernels = kernels_named(cell);
  const cuda::DeviceGuard guard(device);
  const team::LayerShape layer = layer_shape(kernels, dtype, B, H, backward);
  const bool steps = rank == -1 && cuda::has_products();
  const Plan plan =
      steps ? team::steps_plan(layer) : team::plan_ranked(describe(device, kernels), layer, rank);
  if (plan.members == 0 || !can_launch(kernels, plan, backward)) return "";
  plans().set(device, kernels, layer, plan);
  return in_words(plan);
}

int64_t recurrence_cuda_plan_version() { return plans().version(); }

}  // namespace tsm
