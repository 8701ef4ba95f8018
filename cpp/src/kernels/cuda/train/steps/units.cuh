// A thread's units: their numbers in memory and in registers, and one step of the generated cell.
//
// A thread has two or four neighbouring units of a row, a warp has 32 such threads, and a block
// has kStepRows rows.
#pragma once
#include <cstring>
#include <type_traits>

#include "kernels/cuda/train/cell_backward.cuh"
#include "kernels/cuda/train/steps/steps.h"

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

}  // namespace tsm::team
