// A cell's kernels by plan, and how one of them is launched.
#pragma once
#include <utility>

#include "kernels/cuda/check.h"
#include "kernels/cuda/train/teams/register_kernels.cuh"
#include "kernels/cuda/train/teams/team_kernels.cuh"

namespace tsm::team {

// How a plan's kernel is launched.
struct TeamConfig {
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};

  TeamConfig(const void* kernel, const Plan& plan, uintptr_t stream) {
    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     plan.shared_bytes),
                "shared memory of the recurrence");
    config.gridDim = dim3(unsigned(plan.members * plan.teams));
    config.blockDim = dim3(unsigned(plan.threads()));
    config.dynamicSmemBytes = size_t(plan.shared_bytes);
    config.stream = cudaStream_t(stream);
    config.attrs = attributes;
    if (const int size = cluster_size(plan); size > 1) {
      cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                  "clusters of the recurrence");
      cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim.x = unsigned(size);
      cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    }
    if (plan.exchange == Exchange::kGrid) {
      cudaLaunchAttribute& cooperative = attributes[config.numAttrs++];
      cooperative.id = cudaLaunchAttributeCooperative;
      cooperative.val.cooperative = 1;
    }
  }
  static int cluster_size(const Plan& plan) {
    return plan.exchange == Exchange::kCluster ? plan.members : plan.cut;
  }
  TeamConfig(const TeamConfig&) = delete;
};

template <class Cell, class Args>
using Kernel = void (*)(TeamLaunch<Args>, Constants<Cell>);

template <class Cell, class Args>
void launch_team(Kernel<Cell, Args> kernel, const TeamLaunch<Args>& launch) {
  Constants<Cell> k{};
  for (int i = 0; i < Cell::kConstants; ++i) k.value[i] = float(launch.args.constants[i]);
  const TeamConfig made(reinterpret_cast<const void*>(kernel), launch.plan, launch.stream);
  cuda::check(cudaLaunchKernelEx(&made.config, kernel, launch, k), "launch of the recurrence");
}

// Whether the device has such clusters and, if they wait for each other, runs all of them at once.
inline bool can_launch(const void* kernel, const Plan& plan) {
  const int size = TeamConfig::cluster_size(plan);
  if (size == 1) return true;
  TeamConfig made(kernel, plan, 0);
  made.config.numAttrs = 1;  // the cluster's size
  int clusters = 0;
  const cudaError_t status = cudaOccupancyMaxActiveClusters(&clusters, kernel, &made.config);
  if (status != cudaSuccess) cudaGetLastError();  // the device does not support this cluster size
  const int needed = plan.exchange == Exchange::kGrid ? plan.members * plan.teams / size : 1;
  return status == cudaSuccess && clusters >= needed;
}

inline int compiled_for(const void* kernel) {
  cudaFuncAttributes found{};
  const cudaError_t status = cudaFuncGetAttributes(&found, kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
      status == cudaErrorUnsupportedPtxVersion || status == cudaErrorJitCompilerNotFound) {
    cudaGetLastError();
    return 0;
  }
  cuda::check(status, "the recurrence's code");
  return found.ptxVersion;
}

template <class Cell, class D, int F>
constexpr Kernel<Cell, RecurrenceForward> forward_of() {
  if constexpr (!is_compiled(kForms[F], sizeof(D)) || kForms[F].cuts)
    return nullptr;
  else if constexpr (kForms[F].exchange != Exchange::kRegisters)
    return forward_kernel<Cell, D, F>;
  else if constexpr (register_tiles(kForms[F], Cell::kGates, false, sizeof(D)) > 0)
    return register_forward<Cell, D, F>;
  else
    return nullptr;
}
template <class Cell, class D, int F>
constexpr Kernel<Cell, RecurrenceBackward> backward_of() {
  if constexpr (!is_compiled(kForms[F], sizeof(D)))
    return nullptr;
  else if constexpr (kForms[F].exchange != Exchange::kRegisters)
    return backward_kernel<Cell, D, F>;
  else if constexpr (register_tiles(kForms[F], Cell::kGates, true, sizeof(D)) > 0)
    return register_backward<Cell, D, F>;
  else
    return nullptr;
}

// The kernels for element type D, by form.
template <class Cell, class D, class Forms = std::make_integer_sequence<int, kFormCount>>
struct Kernels;
template <class Cell, class D, int... F>
struct Kernels<Cell, D, std::integer_sequence<int, F...>> {
  static constexpr Kernel<Cell, RecurrenceForward> forward[] = {forward_of<Cell, D, F>()...};
  static constexpr Kernel<Cell, RecurrenceBackward> backward[] = {backward_of<Cell, D, F>()...};
};

// The kernels of a cell, by plan.
template <class Cell>
struct Planned {
  using BFloat16 = Kernels<Cell, bf16>;
  using Float32 = Kernels<Cell, float>;

  static auto forward(const Plan& p) {
    return p.number_bytes == 4 ? Float32::forward[p.form] : BFloat16::forward[p.form];
  }
  static auto backward(const Plan& p) {
    return p.number_bytes == 4 ? Float32::backward[p.form] : BFloat16::backward[p.form];
  }
};

template <class Cell>
CellKernels kernels_of() {
  using Of = Planned<Cell>;
  return {CellInfo::of<Cell>(),
          [](const TeamLaunch<RecurrenceForward>& l) { launch_team(Of::forward(l.plan), l); },
          [](const TeamLaunch<RecurrenceBackward>& l) { launch_team(Of::backward(l.plan), l); },
          [](const Plan& plan, bool backward) {
            return can_launch(backward ? reinterpret_cast<const void*>(Of::backward(plan))
                                       : reinterpret_cast<const void*>(Of::forward(plan)),
                              plan);
          },
          [] { return compiled_for(reinterpret_cast<const void*>(Of::BFloat16::forward[0])); }};
}

}  // namespace tsm::team
