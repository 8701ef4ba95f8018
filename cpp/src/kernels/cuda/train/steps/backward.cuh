// The backward kernels of steps.h: one step, what follows step 0 and, without U, all steps. Past
// the end of a row (lengths) nothing is read.
#pragma once
#include <cstring>

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/train/steps/units.cuh"

namespace tsm::team {

// Writes the gradients of the states before the first step, and of the vectors.
template <class Cell, class D, int U>
__device__ inline void finish_units(const Units<Cell, D, U>& units, const RecurrenceBackward& a,
                                    int64_t step, const float (&d)[Cell::kStates][U],
                                    const float (&dq)[Sizes<Cell>::kQ][U]) {
  using N = Sizes<Cell>;
  using M = typename OperandOf<D>::Math;
  using V = typename M::V;
  store_rows(static_cast<float*>(a.grad_state) + units.place, step, d);
  float found[N::kK][U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    V of[N::kQ], dv[N::kK];
#pragma unroll
    for (int i = 0; i < N::Q; ++i) of[i] = V(dq[i][u]);
    Cell::template prepare_backward<M>(units.v[u], units.k, of, dv);
#pragma unroll
    for (int i = 0; i < N::K; ++i) found[i][u] = number(dv[i]);
  }
#pragma unroll
  for (int i = 0; i < N::K; ++i)
    store_floats(static_cast<float*>(a.grad_vectors) + i * step + units.place, found[i]);
}

// d: the gradients after a row's last step.
template <class Cell, class D, int U>
__device__ inline void start_units(const Units<Cell, D, U>& units, const RecurrenceBackward& a,
                                   int64_t step, float (&d)[Cell::kStates][U]) {
  Several<float, U> from[Cell::kStates] = {};
  if (a.grad_last) load_rows(static_cast<const float*>(a.grad_last) + units.place, step, from);
  get_rows(from, d);
}

// d: what the step after has left.
template <class Cell, class D, int U>
__device__ inline void resume_units(const Units<Cell, D, U>& units, const RecurrenceBackward& a,
                                    int64_t step, float (&d)[Cell::kStates][U]) {
  using N = Sizes<Cell>;
#pragma unroll
  for (int i = 0; i < N::S; ++i)
    if (N::reads(i)) load_floats(static_cast<float*>(a.grad_state) + i * step + units.place, d[i]);
}

// What backward reads of a step.
template <class Cell, class D, int U>
struct Fetched {
  Several<D, U> z[Cell::kGates], dy;
  Several<float, U> before[Cell::kStates];
  float dt;

  // From arrays that begin `t` steps before this one.
  __device__ void fetch(const Units<Cell, D, U>& units,
                        const StepsLaunch<RecurrenceBackward>& launch, const Strides& strides,
                        int64_t t) {
    const RecurrenceBackward& a = launch.args;
    const int64_t H = a.shape.H;
    load_rows(
        static_cast<const D*>(a.z) + units.row * strides.z_row + units.unit + t * Cell::kGates * H,
        H, z);
    load_saved<Cell>(static_cast<const float*>(a.saved_states) + units.row * strides.saved_row +
                         units.unit + t * H,
                     strides.saved, before);
    dt = a.dt ? static_cast<const float*>(a.dt)[units.row * a.shape.T + t] : 1.0f;
    // A row of dy may have fewer units than H, and begin at any pair.
    dy = {};
    const int64_t left = a.grad_y ? launch.y_step - units.unit : 0;
    const D* from = static_cast<const D*>(a.grad_y) + units.row * strides.y_row + units.unit +
                    t * launch.y_step;
    if (U == 2 || launch.y_step % U == 0) {
      if (left > 0) dy = Several<D, U>::load_once(from);
      return;
    }
    Several<D, 2> two[U / 2] = {};
#pragma unroll
    for (int i = 0; i < U / 2; ++i)
      if (left > 2 * i) two[i] = Several<D, 2>::load_once(from + 2 * i);
    memcpy(&dy, two, sizeof dy);
  }
};

// One step of a thread's units, with U. dq: of this step alone.
template <class Cell, class D, int U>
__device__ inline void step_back(const StepsLaunch<RecurrenceBackward>& launch,
                                 const Strides& strides, const Units<Cell, D, U>& units,
                                 float (&dq)[Sizes<Cell>::kQ][U]) {
  using N = Sizes<Cell>;
  constexpr int G = N::G, S = N::S;
  const RecurrenceBackward& a = launch.args;
  const int64_t H = a.shape.H;
  const int t = launch.first, T = int(a.shape.T);
  const bool on = t < units.length;
  float d[S][U] = {};
  Fetched<Cell, D, U> now;
  if (on) {
    now.fetch(units, launch, strides, 0);
    if (t + 1 < units.length)
      resume_units(units, a, strides.state, d);
    else
      start_units(units, a, strides.state, d);
  }
  ptx::wait_for_previous();  // for the product
  D* grad_z = static_cast<D*>(a.grad_z) + units.row * strides.z_row + units.unit;
  const float nothing[G][U] = {};
  if (t + 1 == T && launch.pitch > T) store_rows(grad_z + G * H, H, nothing);
  if (!on) return store_rows(grad_z, H, nothing);
  float more[U];
  now.dy.get(more);
  add(d[0], more);
  if (launch.product) {
    load_floats(launch.product + units.place, more);
    add(d[0], more);
  }
  float z[G][U], before[S][U];
  get_rows(now.z, z);
  get_rows(now.before, before);
  units.backward(z, before, now.dt, d, dq);
  store_rows(grad_z, H, z);
#pragma unroll
  for (int i = 0; i < S; ++i)
    if (N::reads(i))
      store_floats(static_cast<float*>(a.grad_state) + i * strides.state + units.place, d[i]);
}

// Where the block's rows have their dq, of these units.
template <class Cell, class D, int U>
__device__ inline float* group_dq(const StepsLaunch<RecurrenceBackward>& launch,
                                  const Units<Cell, D, U>& units, int i) {
  const RecurrenceShape& shape = launch.args.shape;
  const int64_t groups = (shape.B + kStepRows - 1) / kStepRows;
  return launch.dq + (i * groups + units.row / kStepRows) * shape.H + units.unit;
}

// One step, with U.
template <class Cell, class D, int U>
__global__ void __launch_bounds__(kStepThreads)
    step_backward_kernel(const __grid_constant__ StepsLaunch<RecurrenceBackward> launch,
                         const __grid_constant__ Strides strides,
                         const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  constexpr int Q = N::Q;
  const Units<Cell, D, U> units(launch.args, constants);
  float dq[N::kQ][U] = {};
  if (units.live) step_back(launch, strides, units, dq);
  if constexpr (Q > 0) {  // summed over the rows, then over the steps
    __shared__ Several<float, U> of_rows[kStepRows][Q][32];
    const unsigned row = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row > 0)
#pragma unroll
      for (int i = 0; i < Q; ++i) of_rows[row][i][lane] = Several<float, U>::packed(dq[i]);
    Several<float, U> sum[Q] = {};
    if (row == 0 && units.live && launch.first + 1 < launch.args.shape.T)
#pragma unroll
      for (int i = 0; i < Q; ++i) sum[i] = Several<float, U>::load(group_dq(launch, units, i));
    __syncthreads();
    if (row > 0 || !units.live) return;
#pragma unroll
    for (int i = 0; i < Q; ++i) {
      float more[U];
#pragma unroll
      for (int r = 1; r < kStepRows; ++r) {
        of_rows[r][i][lane].get(more);
        add(dq[i], more);
      }
      sum[i].get(more);
      add(dq[i], more);
      store_floats(group_dq(launch, units, i), dq[i]);
    }
  }
}

// All steps, without U.
template <class Cell, class D>
__global__ void __launch_bounds__(kStepThreads)
    steps_backward_kernel(const __grid_constant__ StepsLaunch<RecurrenceBackward> launch,
                          const __grid_constant__ Strides strides,
                          const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  constexpr int G = N::G, S = N::S;
  const RecurrenceBackward& a = launch.args;
  const int64_t H = a.shape.H;
  const Units<Cell, D, 2> units(a, constants);
  if (!units.live) return;
  D* grad_z = static_cast<D*>(a.grad_z) + units.row * strides.z_row + units.unit;
  const float nothing[G][2] = {};
  const int T = int(a.shape.T), stored = launch.pitch > T ? T + 1 : T;
  for (int t = units.length; t < stored; ++t) store_rows(grad_z + int64_t(t) * G * H, H, nothing);
  float d[S][2], dq[N::kQ][2] = {};
  start_units(units, a, strides.state, d);
  Fetched<Cell, D, 2> next{};
  if (units.length > 0) next.fetch(units, launch, strides, units.length - 1);
  for (int t = units.length - 1; t >= 0; --t) {
    const Fetched<Cell, D, 2> now = next;
    if (t > 0) next.fetch(units, launch, strides, t - 1);
    float more[2], z[G][2], before[S][2];
    now.dy.get(more);
    add(d[0], more);
    get_rows(now.z, z);
    get_rows(now.before, before);
    units.backward(z, before, now.dt, d, dq);
    store_rows(grad_z + int64_t(t) * G * H, H, z);
  }
  finish_units(units, a, strides.state, d, dq);
}

// After step 0, with U. The first row of a group has the gradients of the vectors, the others 0.
template <class Cell, class D>
__global__ void __launch_bounds__(kStepThreads)
    steps_finish_kernel(const __grid_constant__ StepsLaunch<RecurrenceBackward> launch,
                        const __grid_constant__ Strides strides,
                        const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  const RecurrenceBackward& a = launch.args;
  const Units<Cell, D, 2> units(a, constants);
  if (!units.live) return;
  ptx::wait_for_previous();  // for the product
  float d[N::S][2] = {}, dq[N::kQ][2] = {};
  if (units.length == 0) {
    start_units(units, a, strides.state, d);
  } else {
    resume_units(units, a, strides.state, d);
    float more[2];
    load_floats(launch.product + units.place, more);
    add(d[0], more);
  }
  if (units.row % kStepRows == 0)
#pragma unroll
    for (int i = 0; i < N::Q; ++i) load_floats(group_dq(launch, units, i), dq[i]);
  finish_units(units, a, strides.state, d, dq);
}

}  // namespace tsm::team
