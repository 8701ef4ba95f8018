// The two kernels of the recurrence: the generated cell between the products of a team
// (team_member.cuh).
#pragma once
#include "kernels/cuda/train/cell_backward.cuh"
#include "kernels/cuda/train/teams/launch.h"
#include "kernels/cuda/train/teams/team_member.cuh"

namespace tsm::team {

// Two neighbouring units of a row, which a thread takes through all steps.
template <class Cell, class D>
struct Item {
  using N = Sizes<Cell>;
  using M = typename OperandOf<D>::Math;
  using V = typename M::V;
  bool live;     // the row and the units exist
  int slice_at;  // bytes into a gate's part of the member's slice
  int z_at;      // floats into a part of z
  int length;    // steps of the row; 0 if not live
  int row;       // in the batch
  int unit;      // the first of the two
  V v[2][N::kK], q[2][N::kQ];

  // Sets item `number` of a member that begins at first_row and first_unit.
  __device__ void set(const Plan& plan, int number, int64_t first_row, int first_unit,
                      const RecurrenceShape& shape, const int64_t* lengths, const void* vectors,
                      const V* k) {
    const int pair = number % (kTile / 2), place = number / (kTile / 2);
    const int slot = place % plan.rows, tile = place / plan.rows;
    row = int(first_row) + slot;
    unit = first_unit + tile * kTile + pair * 2;
    live = tile < plan.tiles() && row < shape.B && unit < shape.H;
    length = !live ? 0 : lengths ? int(lengths[row]) : int(shape.T);
    // Threads without an item shadow the first one: they read, but write nothing.
    const bool safe = tile < plan.tiles();
    slice_at = ((safe ? place : 0) * kTile + pair * 2) * int(sizeof(D));
    z_at = (safe ? tile * plan.z_rows() + slot : 0) * kZStride + pair * 2;
#pragma unroll
    for (int u = 0; u < 2; ++u) {
#pragma unroll
      for (int i = 0; i < N::K; ++i)
        v[u][i] = V(live ? static_cast<const float*>(vectors)[i * shape.H + unit + u] : 1.0f);
      Cell::template prepare<M>(v[u], k, q[u]);
    }
  }
  __device__ bool in_team(const Plan& plan, int number) const {
    return number < plan.rows * plan.units / 2;
  }
};

// Clusters and streamed matrices are compiled only for devices that get plans with them.
__device__ constexpr bool compiled_here(const Form& form) {
  return ptx::kHopper || (form.exchange != Exchange::kCluster && !form.streams && !form.cuts);
}

template <class Cell, class D, int F>
__global__ void __launch_bounds__(warps_of(kForms[F], sizeof(D)) * 32, 1)
    forward_kernel(const __grid_constant__ TeamLaunch<RecurrenceForward> launch,
                   const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  using Operand = OperandOf<D>;
  using Two = typename Operand::Two;
  using M = typename Operand::Math;
  using V = typename M::V;
  constexpr int G = N::G, S = N::S, E = kForms[F].items;
  if constexpr (!compiled_here(kForms[F])) return;  // never launched
  extern __shared__ uint4 shared[];
  const RecurrenceForward& a = launch.args;
  const Plan& plan = launch.plan;
  const int64_t B = a.shape.B, H = a.shape.H;
  const int T = int(a.shape.T);
  Member<D, kForms[F].exchange, G, kForms[F].row_tiles, kForms[F].streams ? kPieceBlocks : 0,
         held_pieces(kForms[F], G)>
      member(launch, shared);
  V k[N::kC];
  constants.get(k);

  using Four = typename Operand::Four;
  const D* weight = static_cast<const D*>(a.weight_h);
  const auto read = [&](int unit, int gate, int from, int block, int at, Four(&out)[2]) {
    const int64_t u = member.first_unit + unit, kk = from * plan.units + block * kTile + at;
    if (u >= H || kk >= H) return;
    const D* row = weight + (gate * H + u) * H + kk;
    out[0] = __ldg(reinterpret_cast<const Four*>(row));
    out[1] = __ldg(reinterpret_cast<const Four*>(row + H));
  };
  member.load_matrix(read);
  member.start();
  if (member.is_producer()) {
    for (int t = 0; t < T; ++t) member.load_chunks(t);
    member.finish();
    return;
  }
  if constexpr (kForms[F].streams)
    if (member.only_multiplies()) {
      member.work(T, read);
      return member.finish();
    }

  const D* zx = static_cast<const D*>(a.zx);
  const float* dts = static_cast<const float*>(a.dt);
  const float* state = static_cast<const float*>(a.state);
  float* last = static_cast<float*>(a.last);
  D* y = static_cast<D*>(a.y);
  D* kept_z = static_cast<D*>(a.z);
  float* saved_states = static_cast<float*>(a.saved_states);
  const int64_t pitch = launch.pitch, all = B * pitch * H;

  const int64_t first_row = launch.first_row + int64_t(member.team) * plan.rows;
  Item<Cell, D> item[E];
  float s[E][S][2];
  bool in_team[E];
  int64_t at[E], at_y[E], at_z[E];  // offsets in saved_states, y and zx at this step
  Two next[E][G];                   // zx, fetched one step ahead
  float next_dt[E];
#pragma unroll
  for (int e = 0; e < E; ++e) {
    const int number = e * plan.item_warps() * 32 + threadIdx.x;
    item[e].set(plan, number, first_row, member.first_unit, a.shape, a.lengths, a.vectors, k);
    in_team[e] = item[e].in_team(plan, number);
    at[e] = int64_t(item[e].row) * pitch * H + item[e].unit;
    at_y[e] = int64_t(item[e].row) * pitch * launch.y_step + item[e].unit;
    at_z[e] = int64_t(item[e].row) * pitch * G * H + item[e].unit;
#pragma unroll
    for (int i = 0; i < S; ++i) {
      const float2 two =
          item[e].live ? load(state + (i * B + item[e].row) * H + item[e].unit) : float2{0, 0};
      s[e][i][0] = two.x;
      s[e][i][1] = two.y;
    }
  }
  const auto publish = [&](int round) {
#pragma unroll
    for (int e = 0; e < E; ++e)
      if (in_team[e]) {
        const bool live = item[e].live;
        const Two h[1] = {Operand::packed(live ? s[e][0][0] : 0.0f, live ? s[e][0][1] : 0.0f)};
        member.publish(round, item[e].slice_at, h);
      }
    member.signal(round);
  };
  const auto fetch = [&](int t) {
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!in_team[e]) continue;
      const bool on = t < item[e].length;
#pragma unroll
      for (int g = 0; g < G; ++g) next[e][g] = on ? load_own(zx + at_z[e] + g * H) : Two{};
      next_dt[e] = dts && on ? __ldg(dts + int64_t(item[e].row) * T + t) : 1.0f;
    }
  };
  fetch(0);
  publish(0);

  for (int t = 0; t < T; ++t) {
    float2 z[E][G];
    float dt[E];
#pragma unroll
    for (int e = 0; e < E; ++e) {
      dt[e] = next_dt[e];
#pragma unroll
      for (int g = 0; g < G; ++g) z[e][g] = Operand::floats(next[e][g]);
      if (saved_states && item[e].live)
#pragma unroll
        for (int i = 0; i < S; ++i)
          if (N::reads(i)) store(saved_states + N::place(i) * all + at[e], s[e][i][0], s[e][i][1]);
      at_z[e] += G * H;
    }
    if (t + 1 < T) fetch(t + 1);
    member.multiply(t);
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!in_team[e]) continue;
      member.add_z(z[e], item[e].z_at);
      const bool on = t < item[e].length;
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        V ze[G], se[S], out[S];
#pragma unroll
        for (int g = 0; g < G; ++g) ze[g] = V(u ? z[e][g].y : z[e][g].x);
#pragma unroll
        for (int i = 0; i < S; ++i) se[i] = V(s[e][i][u]);
        Cell::template activate<M>(ze, ze);
        Cell::template forward<M>(ze, se, item[e].q[u], k, V(dt[e]), out);
#pragma unroll
        for (int i = 0; i < S; ++i) s[e][i][u] = on ? number(out[i]) : s[e][i][u];
      }
    }
    if (t + 1 < T) publish(t + 1);
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (item[e].live) {
        const bool on = t < item[e].length;
        store_two(y + at_y[e], on ? s[e][0][0] : 0.0f, on ? s[e][0][1] : 0.0f);
        if (kept_z)
#pragma unroll
          for (int g = 0; g < G; ++g)
            store_two(kept_z + at_z[e] - G * H + g * H, z[e][g].x, z[e][g].y);
      }
      at[e] += H;
      at_y[e] += launch.y_step;
    }
  }
#pragma unroll
  for (int e = 0; e < E; ++e)
    if (item[e].live)
#pragma unroll
      for (int i = 0; i < S; ++i)
        store(last + (i * B + item[e].row) * H + item[e].unit, s[e][i][0], s[e][i][1]);
  member.finish();
}

template <class Cell, class D, int F>
__global__ void __launch_bounds__(warps_of(kForms[F], sizeof(D)) * 32, 1)
    backward_kernel(const __grid_constant__ TeamLaunch<RecurrenceBackward> launch,
                    const __grid_constant__ Constants<Cell> constants) {
  using N = Sizes<Cell>;
  using Operand = OperandOf<D>;
  using Two = typename Operand::Two;
  using M = typename Operand::Math;
  using V = typename M::V;
  constexpr int G = N::G, S = N::S, K = N::K, Q = N::Q, E = kForms[F].items;
  if constexpr (!compiled_here(kForms[F])) return;  // never launched
  extern __shared__ uint4 shared[];
  const RecurrenceBackward& a = launch.args;
  const Plan& plan = launch.plan;
  const int64_t B = a.shape.B, H = a.shape.H;
  const int T = int(a.shape.T);
  Member<D, kForms[F].exchange, 1, kForms[F].row_tiles, kForms[F].streams ? G * kPieceBlocks : 0,
         held_pieces(kForms[F], G), kForms[F].cuts>
      member(launch, shared);
  V k[N::kC];
  constants.get(k);

  // x is dz of all gates of one member, then of the next: k runs over the rows of U in that order,
  // and the units are its columns.
  const D* weight = static_cast<const D*>(a.weight_h);
  const Quotient by_tiles(plan.tiles());
  const auto read = [&](int unit, int, int from, int block, int at,
                        typename Operand::Four(&out)[2]) {
    const int64_t u = member.first_unit + unit;
    const int gate = by_tiles.of(block);
    const int64_t j = from * plan.units + (block - gate * plan.tiles()) * kTile + at;
    if (u >= H || j >= H) return;
    const D* row = weight + (gate * H + j) * H + u;
    Two both[4];  // units, of four consecutive k
#pragma unroll
    for (int i = 0; i < 4; ++i) both[i] = load_two(row + i * H);
    Operand::turn(both, out);
  };
  member.load_matrix(read);
  member.start();
  if (member.is_producer()) {
    for (int round = 0; round < T; ++round) member.load_chunks(round);
    member.finish();
    return;
  }
  if constexpr (kForms[F].streams)
    if (member.only_multiplies()) {
      member.work(T, read);
      return member.finish();
    }

  const float* dts = static_cast<const float*>(a.dt);
  const D* kept_z = static_cast<const D*>(a.z);
  const float* saved_states = static_cast<const float*>(a.saved_states);
  const D* grad_y = static_cast<const D*>(a.grad_y);
  const float* grad_last = static_cast<const float*>(a.grad_last);
  D* grad_z = static_cast<D*>(a.grad_z);
  float* grad_state = static_cast<float*>(a.grad_state);
  float* grad_vectors = static_cast<float*>(a.grad_vectors);
  const int64_t pitch = launch.pitch, all = B * pitch * H;

  const int64_t first_row = launch.first_row + int64_t(member.team) * plan.rows;
  Item<Cell, D> item[E];
  // d: gradients of the states without the last product's contribution to h. dh: that contribution.
  // dq: gradients of the prepared vectors.
  float d[E][S][2], dh[E][2] = {}, dq[E][N::kQ][2] = {};
  bool in_team[E];
  int64_t at[E], at_y[E],
      at_z[E];  // offsets in saved_states, grad_y and z of the step that is fetched next
#pragma unroll
  for (int e = 0; e < E; ++e) {
    const int number = e * plan.item_warps() * 32 + threadIdx.x;
    item[e].set(plan, number, first_row, member.first_unit, a.shape, a.lengths, a.vectors, k);
    in_team[e] = item[e].in_team(plan, number);
    at[e] = (int64_t(item[e].row) * pitch + T - 1) * H + item[e].unit;
    at_y[e] = (int64_t(item[e].row) * T + T - 1) * launch.y_step + item[e].unit;
    at_z[e] = (int64_t(item[e].row) * pitch + T - 1) * G * H + item[e].unit;
    if (item[e].live && pitch > T)
#pragma unroll
      for (int g = 0; g < G; ++g) store_two(grad_z + at_z[e] + (G + g) * H, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < S; ++i) {
      const float2 two = item[e].live && grad_last
                             ? load(grad_last + (i * B + item[e].row) * H + item[e].unit)
                             : float2{0, 0};
      d[e][i][0] = two.x;
      d[e][i][1] = two.y;
    }
  }
  // What a step reads besides d.
  Two z[E][G], dy[E];
  float2 before[E][S];
  float dt[E];
  const auto fetch = [&](int t) {
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!in_team[e]) continue;
      const bool on = t >= 0 && t < item[e].length;
#pragma unroll
      for (int g = 0; g < G; ++g) z[e][g] = on ? load_own(kept_z + at_z[e] + g * H) : Two{};
#pragma unroll
      for (int i = 0; i < S; ++i)
        before[e][i] =
            N::reads(i) && on ? load(saved_states + N::place(i) * all + at[e]) : float2{0, 0};
      dy[e] = grad_y && on && item[e].unit < launch.y_step ? load_two(grad_y + at_y[e]) : Two{};
      dt[e] = dts && on ? __ldg(dts + int64_t(item[e].row) * T + t) : 1.0f;
      at[e] -= H;
      at_y[e] -= launch.y_step;
      at_z[e] -= G * H;
    }
  };
  // Runs the fetched step backward for one unit: gradients before the step from those after it.
  const auto step = [&](int e, int u, const float (&after)[S]) {
    V ze[G], se[S], de[S];
#pragma unroll
    for (int g = 0; g < G; ++g) {
      const float2 two = Operand::floats(z[e][g]);
      ze[g] = V(u ? two.y : two.x);
    }
#pragma unroll
    for (int i = 0; i < S; ++i) {
      se[i] = V(u ? before[e][i].y : before[e][i].x);
      de[i] = V(after[i]);
    }
    return Gradients<Cell, M>(ze, se, item[e].q[u], k, V(dt[e]), de);
  };
  // The gradients are linear in those after the step, and only that of h waits for the product. So
  // everything but a multiply-add is done before the product: `known` lacks the product's
  // contribution, and `of_h` is the effect of a contribution of 1.
  Gradients<Cell, M> known[E][2], of_h[E][2];
  const auto differentiate = [&]() {
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!in_team[e]) continue;
      const float2 from_y = Operand::floats(dy[e]);
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        float after[S], one[S] = {1.0f};
#pragma unroll
        for (int i = 0; i < S; ++i) after[i] = d[e][i][u];
        after[0] += u ? from_y.y : from_y.x;
        known[e][u] = step(e, u, after);
        of_h[e][u] = step(e, u, one);
      }
    }
  };
  if (T > 0) {
    fetch(T - 1);
    differentiate();
  }
  fetch(T - 2);

  for (int t = T - 1, round = 0; t >= 0; --t, ++round) {
    Two dz[E][G];
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!in_team[e]) continue;
      const bool on = t < item[e].length;
      float out[G][2];
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        known[e][u].add(of_h[e][u], dh[e][u]);
        const Gradients<Cell, M>& found = known[e][u];
#pragma unroll
        for (int g = 0; g < G; ++g) out[g][u] = on ? found.z[g] : 0.0f;
#pragma unroll
        for (int i = 0; i < S; ++i)
          d[e][i][u] = on ? found.s[i] : d[e][i][u] + (i == 0 ? dh[e][u] : 0.0f);
#pragma unroll
        for (int i = 0; i < Q; ++i) dq[e][i][u] += on ? found.q[i] : 0.0f;
      }
#pragma unroll
      for (int g = 0; g < G; ++g) dz[e][g] = Operand::packed(out[g][0], out[g][1]);
      member.publish(round, item[e].slice_at, dz[e]);
    }
    member.signal(round);
#pragma unroll
    for (int e = 0; e < E; ++e)
      if (item[e].live)
#pragma unroll
        for (int g = 0; g < G; ++g)
          *reinterpret_cast<Two*>(grad_z + at_z[e] + (2 * G + g) * H) = dz[e][g];
    if (t > 0) differentiate();
    fetch(t - 2);
    member.multiply(round);
#pragma unroll
    for (int e = 0; e < E; ++e) {
      if (!in_team[e]) continue;
      float2 sum[1] = {};
      member.add_z(sum, item[e].z_at);
      dh[e][0] = sum[0].x;
      dh[e][1] = sum[0].y;
    }
  }
#pragma unroll
  for (int e = 0; e < E; ++e)
#pragma unroll
    for (int u = 0; u < 2; ++u) d[e][0][u] += dh[e][u];
#pragma unroll
  for (int e = 0; e < E; ++e) {
    if (!item[e].live) continue;
    const int64_t place = int64_t(item[e].row) * H + item[e].unit;
#pragma unroll
    for (int i = 0; i < S; ++i) store(grad_state + i * B * H + place, d[e][i][0], d[e][i][1]);
    V dv[2][N::kK];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      V dqe[N::kQ];
#pragma unroll
      for (int i = 0; i < N::kQ; ++i) dqe[i] = V(dq[e][i][u]);
      Cell::template prepare_backward<M>(item[e].v[u], k, dqe, dv[u]);
    }
#pragma unroll
    for (int i = 0; i < K; ++i)
      store(grad_vectors + i * B * H + place, number(dv[0][i]), number(dv[1][i]));
  }
  member.finish();
}

}  // namespace tsm::team
