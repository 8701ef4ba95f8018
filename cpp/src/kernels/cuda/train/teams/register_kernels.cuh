// The two kernels of the recurrence for a U that fits in the registers of one block
// (register_matrix.cuh). A lane takes one unit of one row through all steps.
//
// A step is straight-line code without branches, so that the compiler can put the cell's arithmetic
// between the instructions of the product. __syncwarp() keeps memory accesses between the first
// part of the product and the rest. Loads come before stores: the wait for a store's registers may
// use the same counter as a load, and would then wait for that load as well.
#pragma once
#include "kernels/cuda/train/cell_backward.cuh"
#include "kernels/cuda/train/teams/launch.h"
#include "kernels/cuda/train/teams/register_matrix.cuh"

namespace tsm::team {

// A number D in a register, a bfloat16 in its low half.
template <class D>
__device__ inline uint32_t rounded(float x) {
  return sizeof(D) == 2 ? cuda::packed(x, 0.0f) : __float_as_uint(x);
}
template <class D>
__device__ inline float widened(uint32_t bits) {
  return __uint_as_float(sizeof(D) == 2 ? bits << 16 : bits);
}

// A lane's unit and row.
template <class Cell, class M>
struct LaneItem {
  using N = Sizes<Cell>;
  using V = typename M::V;
  const int row, unit;  // in the batch, in the layer
  const bool live;      // both exist
  const int length;     // steps of the row; 0 if not live
  V v[N::kK], q[N::kQ];

  __device__ LaneItem(int64_t first_row, int row_of_block, int unit, const RecurrenceShape& shape,
                      const int64_t* lengths, const void* vectors, const V* k)
      : row(int(first_row) + int(blockIdx.x) * kRegisterRows + row_of_block),
        unit(unit),
        live(ptx::materialized(row < shape.B && unit < shape.H)),
        length(!live ? 0 : int(lengths ? min(lengths[row], shape.T) : shape.T)) {
#pragma unroll
    for (int i = 0; i < N::K; ++i)
      v[i] = V(live ? static_cast<const float*>(vectors)[i * shape.H + unit] : 1.0f);
    Cell::template prepare<M>(v, k, q);
  }
};

// Prefetches the data of later steps into L2: a load from memory takes longer than a step. A lane
// prefetches 32 bytes of its row's part of a step, or none.
class Prefetcher {
 public:
  static constexpr int kSteps = 8;

  __device__ explicit Prefetcher(int unit) : skip(unit * 32) {}
  // A step reads `bytes` bytes at `from`, the next one `stride` bytes further.
  __device__ void add(const void* from, int64_t bytes, int64_t stride) {
    if (skip >= 0 && skip < bytes) {
      at = static_cast<const char*>(from) + skip + kSteps * stride;
      step = stride;
    }
    skip -= bytes;
  }
  // Called once per step. on: whether the step kSteps later exists and will read its data.
  __device__ void ask(bool on) {
    ptx::prefetch_if(on && step != 0, at);
    at = ptx::materialized(at + step);
  }

 private:
  int64_t skip, step = 0;
  const char* at = nullptr;
};

template <class Cell, class D, int F>
__global__ void __launch_bounds__(kForms[F].warps * 32, 1)
    register_forward(const __grid_constant__ TeamLaunch<RecurrenceForward> launch,
                     const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  using M = typename OperandOf<D>::Math;
  using V = typename M::V;
  using Block =
      RegisterMatrix<D, N::G, kForms[F].warps, register_tiles(kForms[F], N::G, false, sizeof(D))>;
  constexpr int G = N::G, S = N::S, kBytes = sizeof(D);
  extern __shared__ uint4 shared[];
  const RecurrenceForward& a = launch.args;
  const int64_t B = a.shape.B, H = a.shape.H;
  const int T = int(a.shape.T);
  const uint32_t units = uint32_t(H);
  V k[N::kC];
  constants.get(k);

  Block block(shared);
  const D* weight = static_cast<const D*>(a.weight_h);
  block.load_matrix([&](int unit, int gate, int first, int at, uint4(&of)[2]) {
    const int from = first + at;
    if (unit >= H || from >= H) return;
    const D* row = weight + (gate * H + unit) * H + from;
    of[0] = __ldg(reinterpret_cast<const uint4*>(row));
    of[1] = __ldg(reinterpret_cast<const uint4*>(row + H));
  });
  const LaneItem<Cell, M> item(launch.first_row, block.row, block.unit, a.shape, a.lengths,
                               a.vectors, k);

  // Pointers of this lane: zx and saved_states of the current step, y and z of the previous one.
  const int64_t pitch = launch.pitch, row = item.row, all = ptx::materialized(B * pitch * H);
  const D* zx = static_cast<const D*>(a.zx) + row * pitch * G * H + item.unit;
  const float* dts = ptx::materialized(static_cast<const float*>(a.dt) + row * T);
  D* y = static_cast<D*>(a.y) + (row * pitch - 1) * launch.y_step + item.unit;
  D* kept_z = static_cast<D*>(a.z) + (row * pitch - 1) * G * H + item.unit;
  float* saved_states = static_cast<float*>(a.saved_states) + row * pitch * H + item.unit;
  const bool has_dt = ptx::materialized(a.dt != nullptr),
             keeps_z = ptx::materialized(a.z && item.live);
  const bool keeps_states = ptx::materialized(a.saved_states && item.live);
  Prefetcher ahead(item.unit);
  ahead.add(zx - item.unit, G * H * kBytes, G * H * kBytes);
  const float* state = static_cast<const float*>(a.state);
  float s[S];
#pragma unroll
  for (int i = 0; i < S; ++i) s[i] = item.live ? state[(i * B + row) * H + item.unit] : 0.0f;

  uint32_t next[G] = {};  // zx
  float z[G], dt = 1.0f;
  const auto fetch = [&](int t) {
#pragma unroll
    for (int g = 0; g < G; ++g) ptx::load_bits_if(t < item.length, zx + g * units, next[g]);
    ahead.ask(t + Prefetcher::kSteps < item.length);
    zx = ptx::materialized(zx + G * units);
  };
  // Stores the results of the step before t: h, or 0 if the row has ended, and z.
  const auto keep = [&](int t) {
    ptx::store_bits_if(t > 0 && item.live, y, t <= item.length ? rounded<D>(s[0]) : 0);
#pragma unroll
    for (int g = 0; g < G; ++g)
      ptx::store_bits_if(t > 0 && keeps_z, kept_z + g * units, rounded<D>(z[g]));
    y = ptx::materialized(y + launch.y_step);
    kept_z = ptx::materialized(kept_z + G * units);
  };
  const auto publish = [&](int t) {
    ptx::load_if(has_dt && t < item.length, dts + t, dt);
    block.publish(item.live, t, 0, rounded<D>(s[0]));
    __syncthreads();
  };
  typename Block::Sums sums;
  __syncthreads();
  fetch(0);
  publish(0);

  for (int t = 0; t < T; ++t) {
    sums.clear();
    block.template multiply<0, Block::kFirst>(t, sums);
    __syncwarp();
    uint32_t now[G];
#pragma unroll
    for (int g = 0; g < G; ++g) now[g] = next[g];
    fetch(t + 1);
    keep(t);
#pragma unroll
    for (int i = 0; i < S; ++i)
      if (N::reads(i)) ptx::store_if(keeps_states, saved_states + N::place(i) * all, s[i]);
    saved_states = ptx::materialized(saved_states + units);
    __syncwarp();
    block.template multiply<Block::kFirst, Block::kPairs>(t, sums);

    V ze[G], se[S], out[S];
#pragma unroll
    for (int g = 0; g < G; ++g) ze[g] = V(z[g] = widened<D>(now[g]) + block.mine(sums, g));
#pragma unroll
    for (int i = 0; i < S; ++i) se[i] = V(s[i]);
    Cell::template activate<M>(ze, ze);
    Cell::template forward<M>(ze, se, item.q, k, V(dt), out);
#pragma unroll
    for (int i = 0; i < S; ++i) s[i] = t < item.length ? number(out[i]) : s[i];
    publish(t + 1);
  }
  keep(T);
  float* last = static_cast<float*>(a.last);
  if (item.live)
#pragma unroll
    for (int i = 0; i < S; ++i) last[(i * B + row) * H + item.unit] = s[i];
}

template <class Cell, class D, int F>
__global__ void __launch_bounds__(kForms[F].warps * 32, 1)
    register_backward(const __grid_constant__ TeamLaunch<RecurrenceBackward> launch,
                      const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  using M = typename OperandOf<D>::Math;
  using V = typename M::V;
  constexpr int G = N::G, S = N::S, Q = N::Q, kBytes = sizeof(D), kGateBlocks = kForms[F].warps;
  using Block =
      RegisterMatrix<D, 1, G * kGateBlocks, register_tiles(kForms[F], G, true, sizeof(D))>;
  extern __shared__ uint4 shared[];
  const RecurrenceBackward& a = launch.args;
  const int64_t B = a.shape.B, H = a.shape.H;
  const int T = int(a.shape.T);
  const uint32_t units = uint32_t(H);
  V k[N::kC];
  constants.get(k);

  // x is dz, gate by gate: k runs over the rows of U in that order, and the units are its columns.
  Block block(shared);
  const D* weight = static_cast<const D*>(a.weight_h);
  block.load_matrix([&](int unit, int, int first, int at, uint4(&of)[2]) {
    const int gate = first / (kGateBlocks * kTile), from = first % (kGateBlocks * kTile) + at;
    if (unit >= H || from >= H) return;
    const D* row = weight + (gate * H + from) * H + unit;
    if constexpr (sizeof(D) == 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) of[i] = __ldg(reinterpret_cast<const uint4*>(row + i * H));
    } else {
      uint32_t both[8];  // units, of eight consecutive k
#pragma unroll
      for (int i = 0; i < 8; ++i) both[i] = load_two(row + i * H);
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const auto two = [&](int i) {
          return __byte_perm(both[i], both[i + 1], u ? 0x7632 : 0x5410);
        };
        of[u] = {two(0), two(2), two(4), two(6)};
      }
    }
  });
  const LaneItem<Cell, M> item(launch.first_row, block.row, block.unit, a.shape, a.lengths,
                               a.vectors, k);

  // Pointers of this lane, at the last step.
  const int64_t pitch = launch.pitch, row = item.row, all = ptx::materialized(B * pitch * H);
  const int64_t end = row * pitch + T - 1, place = row * H + item.unit;
  const float* dts = ptx::materialized(static_cast<const float*>(a.dt) + row * T);
  const D* kept_z = static_cast<const D*>(a.z) + end * G * H + item.unit;
  const float* saved_states = static_cast<const float*>(a.saved_states) + end * H + item.unit;
  const D* grad_y = static_cast<const D*>(a.grad_y) + (row * T + T - 1) * launch.y_step + item.unit;
  D* grad_z = static_cast<D*>(a.grad_z) + end * G * H + item.unit;
  const bool has_dt = ptx::materialized(a.dt != nullptr);
  const bool has_y = ptx::materialized(a.grad_y && item.unit < launch.y_step);
  Prefetcher ahead(item.unit);
  ahead.add(kept_z - item.unit, G * H * kBytes, -G * H * kBytes);
#pragma unroll
  for (int i = 0; i < S; ++i)
    if (N::reads(i)) ahead.add(saved_states - item.unit + N::place(i) * all, H * 4, -H * 4);
  if (a.grad_y) ahead.add(grad_y - item.unit, launch.y_step * kBytes, -launch.y_step * kBytes);
#pragma unroll
  for (int g = 0; g < G; ++g) ptx::store_bits_if(item.live && pitch > T, grad_z + (G + g) * H, 0);
  // d: gradients of the states without the last product's contribution to h. dh: that contribution.
  // dq: gradients of the prepared vectors.
  float d[S], dh = 0.0f, dq[N::kQ] = {};
  const float* grad_last = static_cast<const float*>(a.grad_last);
#pragma unroll
  for (int i = 0; i < S; ++i) d[i] = item.live && grad_last ? grad_last[i * B * H + place] : 0.0f;

  // What a step reads besides d.
  struct Read {
    uint32_t z[G], dy;
    float before[S], dt;
  };
  Read next{};
  next.dt = 1.0f;
  const auto fetch = [&](int t) {
    const bool on = t >= 0 && t < item.length;
#pragma unroll
    for (int g = 0; g < G; ++g) ptx::load_bits_if(on, kept_z + g * units, next.z[g]);
#pragma unroll
    for (int i = 0; i < S; ++i)
      if (N::reads(i)) ptx::load_if(on, saved_states + N::place(i) * all, next.before[i]);
    ptx::load_bits_if(has_y && on, grad_y, next.dy);
    ptx::load_if(has_dt && on, dts + t, next.dt);
    ahead.ask(on && t >= Prefetcher::kSteps);
    kept_z = ptx::materialized(kept_z - G * units);
    saved_states = ptx::materialized(saved_states - units);
    grad_y = ptx::materialized(grad_y - launch.y_step);
  };
  // As in backward_kernel: computes everything but a multiply-add before the product.
  Gradients<Cell, M> known, of_h;
  const auto differentiate = [&](const Read& read) {
    V z[G], before[S], after[S], one[S];
#pragma unroll
    for (int g = 0; g < G; ++g) z[g] = V(widened<D>(read.z[g]));
#pragma unroll
    for (int i = 0; i < S; ++i) {
      before[i] = V(read.before[i]);
      after[i] = V(d[i] + (i == 0 ? widened<D>(read.dy) : 0.0f));
      one[i] = V(i == 0 ? 1.0f : 0.0f);
    }
    known = Gradients<Cell, M>(z, before, item.q, k, V(read.dt), after);
    of_h = Gradients<Cell, M>(z, before, item.q, k, V(read.dt), one);
  };
  typename Block::Sums sums;
  __syncthreads();
  fetch(T - 1);
  differentiate(next);
  fetch(T - 2);

  for (int t = T - 1, round = 0; t >= 0; --t, ++round) {
    const bool on = t < item.length;
    known.add(of_h, dh);
    uint32_t dz[G];
#pragma unroll
    for (int g = 0; g < G; ++g) {
      dz[g] = on ? rounded<D>(known.z[g]) : 0;
      block.publish(item.live, round, g * kGateBlocks, dz[g]);
    }
    __syncthreads();
    sums.clear();
    block.template multiply<0, Block::kFirst>(round, sums);
    __syncwarp();
    const Read read = next;
    fetch(t - 2);
#pragma unroll
    for (int g = 0; g < G; ++g) ptx::store_bits_if(item.live, grad_z + g * units, dz[g]);
    grad_z = ptx::materialized(grad_z - G * units);
    __syncwarp();
    block.template multiply<Block::kFirst, Block::kPairs>(round, sums);

#pragma unroll
    for (int i = 0; i < S; ++i) d[i] = on ? known.s[i] : d[i] + (i == 0 ? dh : 0.0f);
#pragma unroll
    for (int i = 0; i < Q; ++i) dq[i] += on ? known.q[i] : 0.0f;
    differentiate(read);
    dh = block.mine(sums, 0);
  }
  d[0] += dh;
  if (!item.live) return;
  float* grad_state = static_cast<float*>(a.grad_state);
  float* grad_vectors = static_cast<float*>(a.grad_vectors);
#pragma unroll
  for (int i = 0; i < S; ++i) grad_state[i * B * H + place] = d[i];
  V dqe[N::kQ], dv[N::kK];
#pragma unroll
  for (int i = 0; i < N::kQ; ++i) dqe[i] = V(dq[i]);
  Cell::template prepare_backward<M>(item.v, k, dqe, dv);
#pragma unroll
  for (int i = 0; i < N::K; ++i) grad_vectors[i * B * H + place] = number(dv[i]);
}

}  // namespace tsm::team
