// The forward kernels of steps.h: one step or, without U, all steps.
//
// States are read and written where backward reads them (saved_states); without backward, `last`
// holds them between two launches. Past the end of a row (lengths) nothing is read.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/train/steps/units.cuh"

namespace tsm::team {

// One step, with U.
template <class Cell, class D, int U>
__global__ void __launch_bounds__(kStepThreads)
    step_forward_kernel(const __grid_constant__ StepsLaunch<RecurrenceForward> launch,
                        const __grid_constant__ Strides strides,
                        const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  using Elements = Several<D, U>;
  constexpr int G = N::G, S = N::S;
  const RecurrenceForward& a = launch.args;
  const int64_t H = a.shape.H;
  const Units<Cell, D, U> units(a, constants);
  if (!units.live) return;
  const int t = launch.first, T = int(a.shape.T);
  const bool on = t < units.length;
  float* last = static_cast<float*>(a.last) + units.place;
  auto* saved = static_cast<float*>(a.saved_states) + units.row * strides.saved_row + units.unit;
  float s[S][U] = {};
  if (t == 0) {
#pragma unroll
    for (int i = 0; i < S; ++i)
      load_floats(static_cast<const float*>(a.state) + i * strides.state + units.place, s[i]);
  } else if (on && a.saved_states) {
    Several<float, U> before[S] = {};
    load_saved<Cell>(saved, strides.saved, before);
    get_rows(before, s);
  } else if (on) {
#pragma unroll
    for (int i = 0; i < S; ++i)
      if (N::reads(i)) load_floats(last + i * strides.state, s[i]);
  }
  const float dt = a.dt && on ? static_cast<const float*>(a.dt)[units.row * a.shape.T] : 1.0f;
  ptx::wait_for_previous();  // for the product
  if (t == 0 && a.saved_states) store_saved<Cell>(saved, strides.saved, s);
  D* y = static_cast<D*>(a.y) + units.row * strides.y_row + units.unit;
  if (!on) {
    const float nothing[U] = {};
    Elements::store(y, nothing);
    if (t == 0) store_rows(last, strides.state, s);
    return;
  }
  Elements of_gates[G];
  load_rows(static_cast<const D*>(a.zx) + units.row * strides.z_row + units.unit, H, of_gates);
  float z[G][U];
  get_rows(of_gates, z);
  if (launch.product) {
    const float* product = launch.product + units.row * G * H + units.unit;
#pragma unroll
    for (int g = 0; g < G; ++g) {
      float more[U];
      load_floats(product + g * H, more);
      add(z[g], more);
    }
  }
  units.forward(z, dt, s);
  Elements::store(y, s[0]);
  if (a.saved_states && t + 1 < T) store_saved<Cell>(saved + H, strides.saved, s);
  if (t + 1 == units.length || !a.saved_states) store_rows(last, strides.state, s);
}

// All steps, without U.
template <class Cell, class D>
__global__ void __launch_bounds__(kStepThreads)
    steps_forward_kernel(const __grid_constant__ StepsLaunch<RecurrenceForward> launch,
                         const __grid_constant__ Strides strides,
                         const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  using Elements = Several<D, 2>;
  constexpr int G = N::G, S = N::S;
  const RecurrenceForward& a = launch.args;
  const int64_t H = a.shape.H;
  const Units<Cell, D, 2> units(a, constants);
  if (!units.live) return;
  const int T = int(a.shape.T);
  const D* zx = static_cast<const D*>(a.zx) + units.row * strides.z_row + units.unit;
  D* kept_z = static_cast<D*>(a.z) + units.row * strides.z_row + units.unit;
  D* y = static_cast<D*>(a.y) + units.row * strides.y_row + units.unit;
  const float* dts = static_cast<const float*>(a.dt);
  auto* saved = static_cast<float*>(a.saved_states) + units.row * strides.saved_row + units.unit;
  Several<float, 2> before[S];
  load_rows(static_cast<const float*>(a.state) + units.place, strides.state, before);
  float s[S][2];
  get_rows(before, s);
  Elements next[G] = {};
  if (units.length > 0) load_rows(zx, H, next);
  for (int t = 0; t < units.length; ++t) {
    float z[G][2];
    get_rows(next, z);
    if (t + 1 < units.length) load_rows(zx + int64_t(t + 1) * G * H, H, next);
    if (a.saved_states) store_saved<Cell>(saved + t * H, strides.saved, s);
    units.forward(z, dts ? dts[units.row * a.shape.T + t] : 1.0f, s);
    Elements::store(y + t * launch.y_step, s[0]);
    if (a.z) store_rows(kept_z + int64_t(t) * G * H, H, z);
  }
  store_rows(static_cast<float*>(a.last) + units.place, strides.state, s);
  const float nothing[2] = {};
  for (int t = units.length; t < T; ++t) Elements::store(y + t * launch.y_step, nothing);
}

}  // namespace tsm::team
