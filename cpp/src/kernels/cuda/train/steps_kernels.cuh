// The kernels of steps.h: the generated cell over one step or, without U, over all steps.
//
// A thread has two or four neighbouring units of a row, a warp has 32 such threads, and a block
// has kStepRows rows. States are read and written where backward reads them (saved_states);
// without backward, `last` holds them between two launches. Past the end of a row (lengths) nothing
// is read.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/error.h"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/train/cell_backward.cuh"
#include "kernels/cuda/train/steps.h"

namespace tsm::team {

constexpr unsigned kStepThreads = 32 * kStepRows;
constexpr int64_t kMostGroups = 32768;  // of rows, in a grid's second dimension

// U neighbouring numbers of type D.
template <class D, int U>
struct Several {
  using Operand = OperandOf<D>;
  using Two = typename Operand::Two;
  using Words = std::conditional_t<U == 2, Two, typename Operand::Four>;
  Words words;

  __device__ static Several load(const D* p) { return {*reinterpret_cast<const Words*>(p)}; }
  // For numbers that are not needed again soon: they leave the caches first.
  __device__ static Several load_once(const D* p) {
    return {ptx::load_once(reinterpret_cast<const Words*>(p))};
  }
  __device__ static void store(D* p, const float (&from)[U]) {
    ptx::store_whole(reinterpret_cast<Words*>(p), packed(from).words);
  }
  __device__ static Several packed(const float (&from)[U]) {
    Two two[U / 2];
#pragma unroll
    for (int i = 0; i < U / 2; ++i) two[i] = Operand::packed(from[2 * i], from[2 * i + 1]);
    Several all;
    memcpy(&all, two, sizeof all);
    return all;
  }
  __device__ void get(float (&to)[U]) const {
    Two two[U / 2];
    memcpy(two, &words, sizeof words);
#pragma unroll
    for (int i = 0; i < U / 2; ++i) {
      const float2 both = Operand::floats(two[i]);
      to[2 * i] = both.x;
      to[2 * i + 1] = both.y;
    }
  }
};

template <int U>
__device__ inline void load_floats(const float* p, float (&to)[U]) {
  Several<float, U>::load(p).get(to);
}
template <int U>
__device__ inline void store_floats(float* p, const float (&from)[U]) {
  Several<float, U>::store(p, from);
}
template <int U>
__device__ inline void add(float (&to)[U], const float (&more)[U]) {
#pragma unroll
  for (int u = 0; u < U; ++u) to[u] += more[u];
}

// From one row or one state to the next, in elements: products of sizes that no thread computes.
struct Strides {
  int64_t state, saved;             // of [S,B,H], and of saved states
  int64_t z_row, y_row, saved_row;  // y_row: backward, of its gradient, which has no pitch

  template <class Args>
  Strides(const StepsLaunch<Args>& l, int gates, bool backward)
      : state(l.args.shape.B * l.args.shape.H),
        saved(state * l.pitch),
        z_row(l.pitch * gates * l.args.shape.H),
        y_row((backward ? l.args.shape.T : l.pitch) * l.y_step),
        saved_row(l.pitch * l.args.shape.H) {}
};

// U neighbouring units of a row.
template <class Cell, class D, int U>
struct Units {
  using N = Sizes<Cell>;
  using M = typename OperandOf<D>::Math;
  using V = typename M::V;
  unsigned row, unit;  // the first
  bool live;
  int64_t place;  // in [B,H]
  int length;     // steps of the row
  V k[N::kC], v[U][N::kK], q[U][N::kQ];

  template <class Args>
  __device__ Units(const Args& args, const Constants<Cell>& constants) {
    const RecurrenceShape& shape = args.shape;
    const unsigned group = blockIdx.z * unsigned(kMostGroups) + blockIdx.y;
    row = group * kStepRows + threadIdx.x / 32;
    unit = (blockIdx.x * 32 + threadIdx.x % 32) * U;
    live = row < shape.B && unit < shape.H;
    place = row * shape.H + unit;
    length = int(shape.T);
    if (!live) return;
    if (args.lengths) length = int(max(int64_t(0), min(args.lengths[row], shape.T)));
    constants.get(k);
#pragma unroll
    for (int i = 0; i < N::K; ++i) {
      float values[U];
      load_floats(static_cast<const float*>(args.vectors) + i * shape.H + unit, values);
#pragma unroll
      for (int u = 0; u < U; ++u) v[u][i] = V(values[u]);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) Cell::template prepare<M>(v[u], k, q[u]);
  }

  __device__ void forward(const float (&z)[N::G][U], float dt, float (&s)[N::S][U]) const {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      V ze[N::G], se[N::S], out[N::S];
      of_unit(z, u, ze);
      of_unit(s, u, se);
      Cell::template activate<M>(ze, ze);
      Cell::template forward<M>(ze, se, q[u], k, V(dt), out);
#pragma unroll
      for (int i = 0; i < N::S; ++i) s[i][u] = number(out[i]);
    }
  }

  // z becomes its gradient; d, those of the states before the step; dq is added to.
  __device__ void backward(float (&z)[N::G][U], const float (&s)[N::S][U], float dt,
                           float (&d)[N::S][U], float (&dq)[N::kQ][U]) const {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      V ze[N::G], se[N::S], de[N::S];
      of_unit(z, u, ze);
      of_unit(s, u, se);
      of_unit(d, u, de);
      const Gradients<Cell, M> found(ze, se, q[u], k, V(dt), de);
#pragma unroll
      for (int g = 0; g < N::G; ++g) z[g][u] = found.z[g];
#pragma unroll
      for (int i = 0; i < N::S; ++i) d[i][u] = found.s[i];
#pragma unroll
      for (int i = 0; i < N::Q; ++i) dq[i][u] += found.q[i];
    }
  }

 private:
  template <int R>
  __device__ static void of_unit(const float (&rows)[R][U], int u, V (&to)[R]) {
#pragma unroll
    for (int i = 0; i < R; ++i) to[i] = V(rows[i][u]);
  }
};

// Rows of gates or states, `step` elements apart.
template <class D, int U, int N>
__device__ inline void load_rows(const D* p, int64_t step, Several<D, U> (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = Several<D, U>::load_once(p + i * step);
}
template <class D, int U, int N>
__device__ inline void get_rows(const Several<D, U> (&from)[N], float (&to)[N][U]) {
#pragma unroll
  for (int i = 0; i < N; ++i) from[i].get(to[i]);
}
template <class D, int U, int N>
__device__ inline void store_rows(D* p, int64_t step, const float (&from)[N][U]) {
#pragma unroll
  for (int i = 0; i < N; ++i) Several<D, U>::store(p + i * step, from[i]);
}

// The states before a step, among saved ones.
template <class Cell, int U>
__device__ inline void load_saved(const float* p, int64_t step,
                                  Several<float, U> (&to)[Cell::kStates]) {
  using N = Sizes<Cell>;
#pragma unroll
  for (int i = 0; i < N::S; ++i)
    if (N::reads(i)) to[i] = Several<float, U>::load_once(p + N::place(i) * step);
}
template <class Cell, int U>
__device__ inline void store_saved(float* p, int64_t step, const float (&s)[Cell::kStates][U]) {
  using N = Sizes<Cell>;
#pragma unroll
  for (int i = 0; i < N::S; ++i)
    if (N::reads(i)) store_floats(p + N::place(i) * step, s[i]);
}

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

template <class Cell, class Args>
void launch_steps(void (*kernel)(StepsLaunch<Args>, Strides, Constants<Cell>), int units,
                  const StepsLaunch<Args>& launch) {
  const RecurrenceShape& shape = launch.args.shape;
  constexpr bool kBackward = std::is_same_v<Args, RecurrenceBackward>;
  Constants<Cell> k{};
  for (int i = 0; i < Cell::kConstants; ++i) k.value[i] = float(launch.args.constants[i]);
  const auto parts = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
  const int64_t groups = parts(shape.B, kStepRows), across = parts(shape.H, 32 * units);
  require(shape.B < (int64_t(1) << 31) && shape.H < (int64_t(1) << 31), "the batch is too large");
  const dim3 blocks(unsigned(across), unsigned(std::min(groups, kMostGroups)),
                    unsigned(parts(groups, kMostGroups)));
  cuda::launch(kernel, blocks, kStepThreads, 0, launch.stream, launch.early, launch,
               Strides(launch, Cell::kGates, kBackward), k);
}

// Whether threads with four units each are enough to fill a device.
inline bool is_large(const RecurrenceShape& shape) { return shape.B * shape.H >= int64_t(1) << 17; }

// In float a thread always has two units: there, the products take most of the time.
template <class Cell, class D>
StepKernels step_kernels() {
  using Forward = StepsLaunch<RecurrenceForward>;
  using Backward = StepsLaunch<RecurrenceBackward>;
  constexpr int kMost = sizeof(D) == 2 ? 4 : 2;
  return {[](const Forward& l) {
            if (is_large(l.args.shape))
              launch_steps<Cell>(step_forward_kernel<Cell, D, kMost>, kMost, l);
            else
              launch_steps<Cell>(step_forward_kernel<Cell, D, 2>, 2, l);
          },
          [](const Backward& l) {
            if (is_large(l.args.shape))
              launch_steps<Cell>(step_backward_kernel<Cell, D, kMost>, kMost, l);
            else
              launch_steps<Cell>(step_backward_kernel<Cell, D, 2>, 2, l);
          },
          [](const Backward& l) { launch_steps<Cell>(steps_finish_kernel<Cell, D>, 2, l); },
          [](const Forward& l) { launch_steps<Cell>(steps_forward_kernel<Cell, D>, 2, l); },
          [](const Backward& l) { launch_steps<Cell>(steps_backward_kernel<Cell, D>, 2, l); }};
}

template <class Cell>
CellStepKernels all_step_kernels() {
  return {CellInfo::of<Cell>(), step_kernels<Cell, bf16>(), step_kernels<Cell, float>()};
}

}  // namespace tsm::team
