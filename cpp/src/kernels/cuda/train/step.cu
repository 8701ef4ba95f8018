// One element-wise step of every cell on a GPU: one thread per unit and row.
#include <cuda_runtime.h>

#include "cells/generated/all.h"
#include "core/error.h"
#include "kernels/cuda/train/step.h"

namespace tsm {
namespace {

using M = Scalar<float>;

template <int N>
struct Constants {  // passed by value, so that no copy to the device is needed
  float value[N > 0 ? N : 1];
};

// The work of one thread: unit j of row b.
template <class Cell>
struct Unit {
  static constexpr int G = Cell::kGates, S = Cell::kStates, K = Cell::kVectors;
  static constexpr int kK = K > 0 ? K : 1, kQ = Cell::kPrepared > 0 ? Cell::kPrepared : 1;
  float z[G], s[S], v[kK] = {}, q[kQ] = {}, dt;

  __device__ Unit(const StepCuda& a, const float* constants, int64_t b, int64_t j) {
    for (int i = 0; i < G; ++i) z[i] = a.z[b * G * a.H + i * a.H + j];
    for (int i = 0; i < S; ++i) s[i] = a.state[(i * a.B + b) * a.H + j];
    for (int i = 0; i < K; ++i) v[i] = a.vectors[i * a.H + j];
    dt = a.dt ? a.dt[b] : 1.0f;
    Cell::template activate<M>(z, z);
    Cell::template prepare<M>(v, constants, q);
  }
};

template <class Cell>
__global__ void forward(StepCuda a, Constants<Cell::kConstants> k, float* next) {
  const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= a.B * a.H) return;
  const Unit<Cell> u(a, k.value, n / a.H, n % a.H);
  float out[Cell::kStates];
  Cell::template forward<M>(u.z, u.s, u.q, k.value, u.dt, out);
  for (int i = 0; i < Cell::kStates; ++i) next[i * a.B * a.H + n] = out[i];
}

template <class Cell>
__global__ void backward(StepCuda a, Constants<Cell::kConstants> k, const float* grad_next,
                         float* grad_z, float* grad_state, float* grad_vectors) {
  using U = Unit<Cell>;
  const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= a.B * a.H) return;
  const int64_t b = n / a.H, j = n % a.H;
  const U u(a, k.value, b, j);
  float d[U::S], dz[U::G], ds[U::S], dq[U::kQ] = {}, dv[U::kK] = {};
  for (int i = 0; i < U::S; ++i) d[i] = grad_next[i * a.B * a.H + n];
  Cell::template backward<M>(u.z, u.s, u.q, k.value, u.dt, d, dz, ds, dq);
  Cell::template prepare_backward<M>(u.v, k.value, dq, dv);
  for (int i = 0; i < U::G; ++i) grad_z[b * U::G * a.H + i * a.H + j] = dz[i];
  for (int i = 0; i < U::S; ++i) grad_state[i * a.B * a.H + n] = ds[i];
  for (int i = 0; i < U::K; ++i) grad_vectors[i * a.B * a.H + n] = dv[i];
}

// Calls f(Cell{}) for the cell of that name.
template <class Function>
void dispatch(const std::string& name, const Function& f) {
#define TSM_CASE(cell) \
  if (name == cells::cell::kName) return f(cells::cell{});
  TSM_FOR_EACH_CELL(TSM_CASE)
#undef TSM_CASE
  throw Error("cell '" + name + "' is not compiled in");
}

constexpr int kThreads = 256;
unsigned blocks(const StepCuda& a) { return unsigned((a.B * a.H + kThreads - 1) / kThreads); }

template <class Cell>
Constants<Cell::kConstants> constants_of(const StepCuda& a) {
  Constants<Cell::kConstants> k{};
  for (int i = 0; i < Cell::kConstants; ++i) k.value[i] = float(a.constants[i]);
  return k;
}

void check_launch() {
  const cudaError_t status = cudaGetLastError();
  require(status == cudaSuccess, std::string("CUDA: ") + cudaGetErrorString(status));
}

void check(const StepCuda& a) {
  require(a.B >= 1 && a.H >= 1 && a.B * a.H / kThreads < (int64_t(1) << 31),
          "B, H = " + std::to_string(a.B) + ", " + std::to_string(a.H) + "; accepted: 1 or more");
}

}  // namespace

void step_forward_cuda(const std::string& name, const StepCuda& a, float* next, uintptr_t stream) {
  check(a);
  dispatch(name, [&](auto cell) {
    using Cell = decltype(cell);
    forward<Cell><<<blocks(a), kThreads, 0, cudaStream_t(stream)>>>(a, constants_of<Cell>(a), next);
  });
  check_launch();
}

void step_backward_cuda(const std::string& name, const StepCuda& a, const float* grad_next,
                        float* grad_z, float* grad_state, float* grad_vectors, uintptr_t stream) {
  check(a);
  dispatch(name, [&](auto cell) {
    using Cell = decltype(cell);
    backward<Cell><<<blocks(a), kThreads, 0, cudaStream_t(stream)>>>(
        a, constants_of<Cell>(a), grad_next, grad_z, grad_state, grad_vectors);
  });
  check_launch();
}

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace tsm
