// One step of the cell nru for one row of the batch, forward and backward, without its products.
//
// A function is called by all threads of a team, which share the row. A team has `rank`, `count`,
// sync(), sum(x) over all its threads, wait() for the product before this step, and lanes<N>():
// groups of N threads with `group`, `groups`, `lane`, `lanes`, sum and most. On a GPU it is a block
// (nru.cu); tests use a single thread.
#pragma once
#include <cmath>

#include "kernels/cuda/nru/nru.h"

namespace tsm::nru {

template <class Args>
TSM_CELL int64_t length(const Args& a, int64_t row) {
  if (!a.lengths) return a.shape.T;
  const int64_t given = a.lengths[row];
  return given < 0 ? 0 : given < a.shape.T ? given : a.shape.T;
}

// The mean of z, and 1 / sqrt(variance + 1e-5).
template <class F, class Team, class D>
TSM_CELL void moments(const Team& team, const D* z, int H, F& mean, F& factor) {
  F sum = 0, square = 0;
  for (int i = team.rank; i < H; i += team.count) sum += F(z[i]);
  mean = team.sum(sum) / F(H);
  for (int i = team.rank; i < H; i += team.count) square += (F(z[i]) - mean) * (F(z[i]) - mean);
  factor = F(1) / sqrt(team.sum(square) / F(H) + F(1e-5));
}

// Division of numbers from 0 to 2^24, without the GPU's slow division of integers.
struct Divided {
  int quotient, rest;

  TSM_CELL Divided(int number, int by, float inverse)
      : quotient(int(float(number) * inverse)), rest(number - quotient * by) {
    const int more = rest >= by ? 1 : rest < 0 ? -1 : 0;
    quotient += more;
    rest -= more * by;
  }
};

// The outer product of two halves of `out`, in rows of M numbers; one of its 2 k rows: first those
// of write, then those of erase.
template <class F>
struct Entries {
  const F *a, *b;  // [side]
  int side, first;
  float inverse;  // 1 / side

  TSM_CELL Entries(const NruShape& s, const F* out, int row)
      : a(out + 2 * s.heads + (row < s.heads ? 0 : 2 * s.side)),
        b(a + s.side),
        side(s.side),
        first((row < s.heads ? row : row - s.heads) * s.M),
        inverse(1.0f / float(side)) {}
  TSM_CELL F at(int column) const {
    const Divided flat(first + column, side, inverse);
    return a[flat.quotient] * b[flat.rest];
  }
  // 1 / max(5-norm, 1e-12), or 0 if the norm exceeds 5.0859e7; `free`: whether the norm is at least
  // 1e-12. As unit_norm in plugin/cells/tape/rows.py.
  template <class Lanes>
  TSM_CELL F inverse_norm(const Lanes& lanes, int M, bool& free) const {
    F most = F(1e-30), sum = 0;
    for (int j = lanes.lane; j < M; j += lanes.lanes) most = fmax(most, fabs(at(j)));
    most = lanes.most(most);
    const F scale = F(1) / most;
    for (int j = lanes.lane; j < M; j += lanes.lanes) {
      const F unit = fabs(at(j)) * scale, square = unit * unit;
      sum += square * square * unit;
    }
    const F norm = pow(fmax(lanes.sum(sum), F(1)), F(0.2)), least = F(1e-12) * scale;
    free = norm >= least;
    return norm > F(5.0859e7) * scale ? F(0) : scale / fmax(norm, least);
  }
};

// h = relu(norm(z))
template <class Team, class D, class F>
TSM_CELL void hidden(const Team& team, const NruForward<D, F>& a, int64_t row, int64_t t) {
  const NruShape& s = a.shape;
  const D* const z = a.z + (row * s.T + t) * s.wide_h;
  D* const to = a.rows + (row * (s.T + 1) + t + 1) * nru_line(s);
  const int64_t steps = length(a, row);
  team.wait();
  if (t >= steps) {
    for (int i = team.rank; i < s.wide_h; i += team.count) to[i] = D(F(0));
    return;
  }
  F mean = 0, factor = 1;
  if (a.norm) moments(team, z, s.H, mean, factor);
  for (int i = team.rank; i < s.wide_h; i += team.count) {
    F h = 0;
    if (i < s.H) {
      h = F(z[i]);
      if (a.norm) h = (h - mean) * factor * a.norm[i] + a.norm[s.H + i];
      if (h < F(0)) h = 0;  // keeps a NaN
      if (t + 1 == steps) a.h[row * s.H + i] = h;
    }
    to[i] = D(h);
  }
}

// m = m' + mean_k(alpha write - beta erase). scratch: [2 k].
template <class Team, class D, class F>
TSM_CELL void memory(const Team& team, const NruForward<D, F>& a, int64_t row, int64_t t,
                     F* scratch) {
  const NruShape& s = a.shape;
  const F* const out = a.out + (row * s.T + t) * s.wide_out;
  F* const m = a.m + row * s.wide_m;
  D* const to = a.rows + (row * (s.T + 1) + t + 1) * nru_line(s) + s.wide_h;
  const bool live = t < length(a, row);
  team.wait();
  if (live) {
    const auto lanes = team.template lanes<32>();
    for (int k = lanes.group; k < 2 * s.heads; k += lanes.groups) {
      bool free;
      const F share = out[k] / F(s.heads);
      const F inverse = Entries<F>(s, out, k).inverse_norm(lanes, s.M, free);
      if (lanes.lane == 0) scratch[k] = (k < s.heads ? share : -share) * inverse;
    }
    team.sync();
  }
  for (int j = team.rank; j < s.wide_m; j += team.count) {
    F sum = m[j];
    if (live && j < s.M) {
      for (int k = 0; k < 2 * s.heads; ++k) sum += scratch[k] * Entries<F>(s, out, k).at(j);
      m[j] = sum;
    }
    to[j] = D(sum);
    if (s.parts == 2) to[s.wide_m + j] = D(sum - F(to[j]));
  }
}

// The gradient of `out`, from that of m. scratch: [3, 2 k].
//
// With y = x / n a row of write, n its norm and d = dm / k: dalpha = <d, y>, and
// dx = alpha / n (d - dalpha |y|^3 y), or alpha d / n where n is fixed at 1e-12; erase has -beta.
// A row that counts as 0 has 1 / n = 0.
template <class Team, class D, class F>
TSM_CELL void memory(const Team& team, const NruBackward<D, F>& a, int64_t row, int64_t t,
                     F* scratch) {
  const NruShape& s = a.shape;
  const int rows = 2 * s.heads;
  const int64_t line = row * (s.T + 1) + t;
  const F* const out = a.out + (row * s.T + t) * s.wide_out;
  F* const dm = a.dm + row * s.wide_m;
  const F *const from_z = a.from_z + row * (s.wide_h + s.wide_m) + s.wide_h, *const from_out =
                                                                                 a.from_out +
                                                                                 row * nru_line(s);
  D* const dout = a.dout + line * s.wide_out;
  const bool live = t < length(a, row);
  F *const inverses = scratch, *const dots = scratch + rows, *const weights = scratch + 2 * rows;
  const F share = F(1) / F(s.heads);
  const auto warps = team.template lanes<32>();
  if (live)
    for (int k = warps.group; k < rows; k += warps.groups) {
      bool free;
      const F inverse = Entries<F>(s, out, k).inverse_norm(warps, s.M, free);
      if (warps.lane > 0) continue;
      inverses[k] = inverse;
      dots[k] = free ? F(1) : F(0);
      weights[k] = (k < s.heads ? out[k] : -out[k]) * inverse;
    }
  team.wait();
  if (t + 1 == s.T)
    for (int i = team.rank; i < s.wide_out; i += team.count) dout[s.wide_out + i] = D(F(0));
  for (int j = team.rank; j < s.wide_m; j += team.count) dm[j] += from_z[j] + from_out[j];
  if (!live) {
    for (int i = team.rank; i < s.wide_out; i += team.count) dout[i] = D(F(0));
    return;
  }
  team.sync();
  for (int k = warps.group; k < rows; k += warps.groups) {
    const Entries<F> entries(s, out, k);
    F sum = 0;
    for (int j = warps.lane; j < s.M; j += warps.lanes)
      sum += dm[j] * (entries.at(j) * inverses[k]);
    const F dot = warps.sum(sum) * share;
    if (warps.lane > 0) continue;
    dots[k] *= dot;
    dout[k] = D(k < s.heads ? dot : -dot);
  }
  team.sync();
  const auto lanes = team.template lanes<4>();
  const float inverse_m = 1.0f / float(s.M);
  for (int n = lanes.group; n < 4 * s.side; n += lanes.groups) {  // a number of write or erase
    const int first = n < 2 * s.side ? 0 : s.heads, index = n % s.side;
    const bool of_a = n % (2 * s.side) < s.side;
    const F* const halves = out + rows + (first ? 2 * s.side : 0);
    const F own = halves[of_a ? index : s.side + index];
    F sum = 0;
    for (int i = lanes.lane; i < s.side; i += lanes.lanes) {
      const F other = halves[of_a ? s.side + i : i];
      const Divided flat(of_a ? index * s.side + i : i * s.side + index, s.M, inverse_m);
      const int k = first + flat.quotient;
      const F y = own * other * inverses[k], d = dm[flat.rest] * share;
      sum += weights[k] * (d - dots[k] * (y * y) * fabs(y) * y) * other;
    }
    sum = lanes.sum(sum);
    if (lanes.lane == 0) dout[rows + n] = D(sum);
  }
  for (int i = rows + 4 * s.side + team.rank; i < s.wide_out; i += team.count) dout[i] = D(F(0));
}

// The gradient of z, from that of h.
template <class Team, class D, class F>
TSM_CELL void hidden(const Team& team, const NruBackward<D, F>& a, int64_t row, int64_t t) {
  const NruShape& s = a.shape;
  const int64_t steps = length(a, row), line = row * (s.T + 1) + t;
  D* const dz = a.dz + line * s.wide_h;
  team.wait();
  if (t + 1 == s.T)
    for (int i = team.rank; i < s.wide_h; i += team.count) dz[s.wide_h + i] = D(F(0));
  if (t >= steps) {
    for (int i = team.rank; i < s.wide_h; i += team.count) dz[i] = D(F(0));
    return;
  }
  const D* const h = a.rows + (line + 1) * nru_line(s);
  const D* const dy = a.dy ? a.dy + (row * s.T + t) * s.H : nullptr;
  const F *const from_z = a.from_z + row * (s.wide_h + s.wide_m), *const from_out =
                                                                      a.from_out +
                                                                      row * nru_line(s) + nru_h(s);
  const F* const last = a.dh && t + 1 == steps ? a.dh + row * s.H : nullptr;
  const auto gradient = [&](int i) {  // before relu
    const F all = from_z[i] + from_out[i] + (dy ? F(dy[i]) : F(0)) + (last ? last[i] : F(0));
    return F(h[i]) > F(0) ? all : F(0);
  };
  if (!a.norm) {
    for (int i = team.rank; i < s.wide_h; i += team.count) dz[i] = D(i < s.H ? gradient(i) : F(0));
    return;
  }
  const D* const z = a.z + (row * s.T + t) * s.wide_h;
  F *const dscale = a.dnorm + row * s.H, *const dshift = dscale + s.B * s.H;
  F mean, factor, sum = 0, product = 0;
  moments(team, z, s.H, mean, factor);
  for (int i = team.rank; i < s.H; i += team.count) {
    const F unit = (F(z[i]) - mean) * factor, d = gradient(i);
    dscale[i] += d * unit;
    dshift[i] += d;
    sum += d * a.norm[i];
    product += d * a.norm[i] * unit;
  }
  sum = team.sum(sum) / F(s.H);
  product = team.sum(product) / F(s.H);
  for (int i = team.rank; i < s.wide_h; i += team.count) {
    F found = 0;
    if (i < s.H) {
      const F unit = (F(z[i]) - mean) * factor;
      found = factor * (gradient(i) * a.norm[i] - sum - unit * product);
    }
    dz[i] = D(found);
  }
}

}  // namespace tsm::nru
