// The kernels of steps.h: the generated cell over one step, or several if there is no U.
//
// A thread has two neighbouring units of a row. States are read and written where backward reads
// them (saved_states); without backward, `last` holds them between two launches. Past the end of a
// row (lengths) nothing is read.
#pragma once
#include "core/error.h"
#include "kernels/cuda/early.cuh"
#include "kernels/cuda/train/cell_backward.cuh"
#include "kernels/cuda/train/steps.h"

namespace tsm::team {

constexpr unsigned kStepThreads = 256;

// Two neighbouring units of a row.
template <class Cell, class D>
struct Pair {
  using N = Sizes<Cell>;
  using M = typename OperandOf<D>::Math;
  using V = typename M::V;
  bool live;
  int64_t row, unit;  // the first of the two
  int64_t place;      // in [B,H]
  int length;         // steps of the row
  V k[N::kC], v[2][N::kK], q[2][N::kQ];

  template <class Launch>
  __device__ Pair(const Launch& launch, const Constants<Cell>& constants) {
    const RecurrenceShape& shape = launch.args.shape;
    const unsigned n = blockIdx.x * kStepThreads + threadIdx.x, pairs = unsigned(shape.H / 2);
    const unsigned in_batch = n / pairs;
    live = in_batch < shape.B;
    row = in_batch;
    unit = int64_t(n - in_batch * pairs) * 2;
    place = row * shape.H + unit;
    if (!live) return;
    length = int(shape.T);
    if (launch.args.lengths)
      length = int(max(int64_t(0), min(launch.args.lengths[row], int64_t(shape.T))));
    constants.get(k);
#pragma unroll
    for (int u = 0; u < 2; ++u) {
#pragma unroll
      for (int i = 0; i < N::K; ++i)
        v[u][i] = V(static_cast<const float*>(launch.args.vectors)[i * shape.H + unit + u]);
      Cell::template prepare<M>(v[u], k, q[u]);
    }
  }
};

template <class Cell, class D>
__global__ void __launch_bounds__(kStepThreads)
    steps_forward_kernel(const __grid_constant__ StepsLaunch<RecurrenceForward> launch,
                         const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  using Operand = OperandOf<D>;
  using Two = typename Operand::Two;
  using P = Pair<Cell, D>;
  using M = typename P::M;
  using V = typename M::V;
  constexpr int G = N::G, S = N::S;
  const RecurrenceForward& a = launch.args;
  const int64_t B = a.shape.B, H = a.shape.H, pitch = launch.pitch;
  const int64_t one = B * H, all = B * pitch * H;
  const int T = int(a.shape.T);
  const P pair(launch, constants);
  if (!pair.live) return;
  const D* zx = static_cast<const D*>(a.zx) + pair.row * pitch * G * H + pair.unit;
  D* kept_z = static_cast<D*>(a.z) + pair.row * pitch * G * H + pair.unit;
  D* y = static_cast<D*>(a.y) + pair.row * pitch * launch.y_step + pair.unit;
  const float* dts = static_cast<const float*>(a.dt);
  const float* product = launch.product + pair.row * G * H + pair.unit;
  float* last = static_cast<float*>(a.last) + pair.place;
  float* saved = static_cast<float*>(a.saved_states);
  float* own_states = saved + pair.row * pitch * H + pair.unit;

  float2 s[S];
#pragma unroll
  for (int i = 0; i < S; ++i) {
    s[i] = {0, 0};
    if (launch.first == 0)
      s[i] = load(static_cast<const float*>(a.state) + i * one + pair.place);
    else if (N::reads(i) && launch.first < pair.length)
      s[i] = own_floats(saved ? own_states + N::place(i) * all + launch.first * H : last + i * one);
  }
  const auto keep_states = [&](int t) {  // those before step t
#pragma unroll
    for (int i = 0; i < S; ++i)
      if (N::reads(i)) store(own_states + N::place(i) * all + t * H, s[i].x, s[i].y);
  };
  const auto set_last = [&] {
#pragma unroll
    for (int i = 0; i < S; ++i) store(last + i * one, s[i].x, s[i].y);
  };
  ptx::wait_for_previous();  // for the product
  if (launch.first == 0 && saved && T > 0) keep_states(0);
  if (launch.first == 0 && pair.length == 0) set_last();

  Two next[G];
  const auto fetch = [&](int t) {
#pragma unroll
    for (int g = 0; g < G; ++g)
      next[g] = t < pair.length ? load_own(zx + (int64_t(t) * G + g) * H) : Two{};
  };
  if (launch.first < launch.end) fetch(launch.first);
  for (int t = launch.first; t < launch.end; ++t) {
    float2 z[G];
#pragma unroll
    for (int g = 0; g < G; ++g) z[g] = Operand::floats(next[g]);
    if (t + 1 < launch.end) fetch(t + 1);
    if (t >= pair.length) {
      store_two(y + t * launch.y_step, 0.0f, 0.0f);
      continue;
    }
    if (launch.product)
#pragma unroll
      for (int g = 0; g < G; ++g) {
        const float2 more = own_floats(product + g * H);
        z[g].x += more.x;
        z[g].y += more.y;
      }
    const V dt(dts ? dts[pair.row * T + t] : 1.0f);
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      V ze[G], se[S], out[S];
#pragma unroll
      for (int g = 0; g < G; ++g) ze[g] = V(u ? z[g].y : z[g].x);
#pragma unroll
      for (int i = 0; i < S; ++i) se[i] = V(u ? s[i].y : s[i].x);
      Cell::template activate<M>(ze, ze);
      Cell::template forward<M>(ze, se, pair.q[u], pair.k, dt, out);
#pragma unroll
      for (int i = 0; i < S; ++i) (u ? s[i].y : s[i].x) = number(out[i]);
    }
    store_two(y + t * launch.y_step, s[0].x, s[0].y);
    if (a.z)
#pragma unroll
      for (int g = 0; g < G; ++g) store_two(kept_z + (int64_t(t) * G + g) * H, z[g].x, z[g].y);
    if (saved && t + 1 < T) keep_states(t + 1);
    if (t + 1 == pair.length || (!saved && t + 1 == launch.end)) set_last();
  }
}

// Writes the gradients of the states before the first step, and of the vectors.
template <class Cell, class D>
__device__ inline void finish_pair(const Pair<Cell, D>& pair, const RecurrenceBackward& a,
                                   const float2* d, const float2* dq) {
  using N = Sizes<Cell>;
  using M = typename OperandOf<D>::Math;
  using V = typename M::V;
  const int64_t one = a.shape.B * a.shape.H;
#pragma unroll
  for (int i = 0; i < N::S; ++i)
    store(static_cast<float*>(a.grad_state) + i * one + pair.place, d[i].x, d[i].y);
  V dv[2][N::kK];
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    V of[N::kQ];
#pragma unroll
    for (int i = 0; i < N::Q; ++i) of[i] = V(u ? dq[i].y : dq[i].x);
    Cell::template prepare_backward<M>(pair.v[u], pair.k, of, dv[u]);
  }
#pragma unroll
  for (int i = 0; i < N::K; ++i)
    store(static_cast<float*>(a.grad_vectors) + i * one + pair.place, number(dv[0][i]),
          number(dv[1][i]));
}

// d: the gradients after a row's last step.
template <class Cell, class D>
__device__ inline void start_pair(const Pair<Cell, D>& pair, const RecurrenceBackward& a,
                                  float2* d) {
#pragma unroll
  for (int i = 0; i < Cell::kStates; ++i)
    d[i] =
        a.grad_last
            ? load(static_cast<const float*>(a.grad_last) + i * a.shape.B * a.shape.H + pair.place)
            : float2{0, 0};
}

// d and dq: what the step after has left.
template <class Cell, class D>
__device__ inline void resume_pair(const Pair<Cell, D>& pair,
                                   const StepsLaunch<RecurrenceBackward>& launch, float2* d,
                                   float2* dq) {
  using N = Sizes<Cell>;
  const int64_t one = launch.args.shape.B * launch.args.shape.H;
#pragma unroll
  for (int i = 0; i < N::S; ++i)
    if (N::reads(i))
      d[i] = own_floats(static_cast<float*>(launch.args.grad_state) + i * one + pair.place);
#pragma unroll
  for (int i = 0; i < N::Q; ++i) dq[i] = own_floats(launch.dq + i * one + pair.place);
}

template <class Cell, class D>
__global__ void __launch_bounds__(kStepThreads)
    steps_backward_kernel(const __grid_constant__ StepsLaunch<RecurrenceBackward> launch,
                          const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  using Operand = OperandOf<D>;
  using Two = typename Operand::Two;
  using P = Pair<Cell, D>;
  using M = typename P::M;
  using V = typename M::V;
  constexpr int G = N::G, S = N::S, Q = N::Q;
  const RecurrenceBackward& a = launch.args;
  const int64_t B = a.shape.B, H = a.shape.H, pitch = launch.pitch;
  const int64_t one = B * H, all = B * pitch * H;
  const int T = int(a.shape.T);
  const P pair(launch, constants);
  if (!pair.live) return;
  const D* z = static_cast<const D*>(a.z) + pair.row * pitch * G * H + pair.unit;
  D* grad_z = static_cast<D*>(a.grad_z) + pair.row * pitch * G * H + pair.unit;
  const D* grad_y = static_cast<const D*>(a.grad_y) + pair.row * T * launch.y_step + pair.unit;
  const float* dts = static_cast<const float*>(a.dt);
  const float* own_states =
      static_cast<const float*>(a.saved_states) + pair.row * pitch * H + pair.unit;
  const bool has_dy = a.grad_y && pair.unit < launch.y_step;

  float2 d[S] = {}, dq[N::kQ] = {};
  if (launch.end < pair.length) resume_pair(pair, launch, d, dq);
  struct Fetched {
    Two z[G], dy;
    float2 before[S];
    float dt;
  } next;
  const auto fetch = [&](int t) {
    const bool on = t < pair.length;
#pragma unroll
    for (int g = 0; g < G; ++g) next.z[g] = on ? load_own(z + (int64_t(t) * G + g) * H) : Two{};
#pragma unroll
    for (int i = 0; i < S; ++i)
      next.before[i] =
          N::reads(i) && on ? load(own_states + N::place(i) * all + t * H) : float2{0, 0};
    next.dy = has_dy && on ? load_two(grad_y + t * launch.y_step) : Two{};
    next.dt = dts && on ? dts[pair.row * T + t] : 1.0f;
  };
  const auto store_dz = [&](int t, const float2* dz) {
#pragma unroll
    for (int g = 0; g < G; ++g) store_two(grad_z + (int64_t(t) * G + g) * H, dz[g].x, dz[g].y);
  };
  const float2 nothing[G] = {};
  if (launch.first < launch.end) fetch(launch.end - 1);
  ptx::wait_for_previous();  // for the product
  if (launch.end == T && pitch > T) store_dz(T, nothing);
  for (int t = launch.end - 1; t >= launch.first; --t) {
    const Fetched now = next;
    if (t > launch.first) fetch(t - 1);
    if (t >= pair.length) {
      store_dz(t, nothing);
      continue;
    }
    if (t + 1 == pair.length) start_pair(pair, a, d);
    const float2 dy = Operand::floats(now.dy);
    d[0].x += dy.x;
    d[0].y += dy.y;
    if (launch.product) {
      const float2 dh = own_floats(launch.product + pair.place);
      d[0].x += dh.x;
      d[0].y += dh.y;
    }
    float2 dz[G];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      V ze[G], se[S], de[S];
#pragma unroll
      for (int g = 0; g < G; ++g) {
        const float2 two = Operand::floats(now.z[g]);
        ze[g] = V(u ? two.y : two.x);
      }
#pragma unroll
      for (int i = 0; i < S; ++i) {
        se[i] = V(u ? now.before[i].y : now.before[i].x);
        de[i] = V(u ? d[i].y : d[i].x);
      }
      const Gradients<Cell, M> found(ze, se, pair.q[u], pair.k, V(now.dt), de);
#pragma unroll
      for (int g = 0; g < G; ++g) (u ? dz[g].y : dz[g].x) = found.z[g];
#pragma unroll
      for (int i = 0; i < S; ++i) (u ? d[i].y : d[i].x) = found.s[i];
#pragma unroll
      for (int i = 0; i < Q; ++i) (u ? dq[i].y : dq[i].x) += found.q[i];
    }
    store_dz(t, dz);
  }
  if (launch.dq) {  // the next launch continues
    if (launch.first >= pair.length) return;
#pragma unroll
    for (int i = 0; i < S; ++i)
      if (N::reads(i))
        store(static_cast<float*>(a.grad_state) + i * one + pair.place, d[i].x, d[i].y);
#pragma unroll
    for (int i = 0; i < Q; ++i) store(launch.dq + i * one + pair.place, dq[i].x, dq[i].y);
    return;
  }
  if (pair.length == 0) start_pair(pair, a, d);
  finish_pair(pair, a, d, dq);
}

template <class Cell, class D>
__global__ void __launch_bounds__(kStepThreads)
    steps_finish_kernel(const __grid_constant__ StepsLaunch<RecurrenceBackward> launch,
                        const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  const RecurrenceBackward& a = launch.args;
  const Pair<Cell, D> pair(launch, constants);
  if (!pair.live) return;
  ptx::wait_for_previous();  // for the product
  float2 d[N::S] = {}, dq[N::kQ] = {};
  if (pair.length == 0) {
    start_pair(pair, a, d);
  } else {
    resume_pair(pair, launch, d, dq);
    const float2 dh = own_floats(launch.product + pair.place);
    d[0].x += dh.x;
    d[0].y += dh.y;
  }
  finish_pair(pair, a, d, dq);
}

template <class Cell, class Args>
void launch_steps(void (*kernel)(StepsLaunch<Args>, Constants<Cell>),
                  const StepsLaunch<Args>& launch) {
  const RecurrenceShape& shape = launch.args.shape;
  Constants<Cell> k{};
  for (int i = 0; i < Cell::kConstants; ++i) k.value[i] = float(launch.args.constants[i]);
  const int64_t pairs = shape.B * (shape.H / 2);
  require(pairs < (int64_t(1) << 31), "the batch is too large");
  const unsigned blocks = unsigned((pairs + kStepThreads - 1) / kStepThreads);
  cuda::launch(kernel, blocks, kStepThreads, 0, launch.stream, launch.early, launch, k);
}

template <class Cell, class D>
StepKernels step_kernels() {
  using Forward = StepsLaunch<RecurrenceForward>;
  using Backward = StepsLaunch<RecurrenceBackward>;
  return {[](const Forward& l) { launch_steps<Cell>(steps_forward_kernel<Cell, D>, l); },
          [](const Backward& l) { launch_steps<Cell>(steps_backward_kernel<Cell, D>, l); },
          [](const Backward& l) { launch_steps<Cell>(steps_finish_kernel<Cell, D>, l); }};
}

template <class Cell>
CellStepKernels all_step_kernels() {
  return {CellInfo::of<Cell>(), step_kernels<Cell, bf16>(), step_kernels<Cell, float>()};
}

}  // namespace tsm::team
