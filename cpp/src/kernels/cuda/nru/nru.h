// The recurrence of the cell nru over one chunk, for training, step by step on a GPU.
//
// A step is two products (products.h) and two kernels (row.h):
//
//   forward    z = zx + [h', m'] UV^T;  hidden: z -> h;  out = [m', 1, h] E^T;  memory: out -> m
//   backward   memory': dm, out -> dout;  G = dout E;  hidden': dy, P, G -> dz;  P = dz UV
//
// `rows` has one line [h, m, 1, 0...] for each step of each row of the batch: h and m before that
// step. The h of step t begins the line after it, so both operands [h', m'] and [m', 1, h] are
// neighbours in memory. UV is [U, V]; E has the maps to alpha, beta, write and erase as columns
// [m, bias, 0..., h]. Widths are rounded up to multiples of 8, with zeros. In bfloat16, m is kept
// in two parts, m rounded and the rest, with the same columns of UV and E for both: it is the sum
// of all steps, and rounding it would cost as much precision as all other roundings together.
#pragma once
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "cells/math.h"
#include "core/error.h"
#include "kernels/cuda/train/products.h"

namespace tsm {

struct NruShape {
  int64_t B, T;
  int H, M, heads, side;  // side^2 = heads M
  int parts;              // of m: 1 or 2
  int wide_h, wide_m, wide_out;

  NruShape(int64_t rows, int64_t steps, int64_t units, int64_t memory, int64_t k, int parts_of_m)
      : B(rows), T(steps), H(int(units)), M(int(memory)), heads(int(k)), parts(parts_of_m) {
    require(B > 0 && B < kMost && T > 0 && T < kMost && units > 0 && units < kMost && memory > 0 &&
                memory < kMost && k > 0 && k <= kMostHeads && memory * k < kMostEntries &&
                (parts == 1 || parts == 2),
            "nru: a size is not positive, or too large");
    side = int(std::llround(std::sqrt(double(memory * k))));
    require(int64_t(side) * side == memory * k, "nru: memory_size x heads is not a square");
    const auto wide = [](int size) { return (size + 7) / 8 * 8; };
    wide_h = wide(H);
    wide_m = wide(M);
    wide_out = wide(2 * heads + 4 * side);
  }

 private:
  static constexpr int64_t kMost = 1 << 28, kMostHeads = 1024, kMostEntries = 1 << 24;
};

// Elements of a line of `rows`, of its part [h, m], and where h begins in [m, 1, 0..., h].
TSM_CELL int nru_both(const NruShape& s) { return s.wide_h + s.parts * s.wide_m; }
TSM_CELL int nru_line(const NruShape& s) { return nru_both(s) + 8; }
TSM_CELL int nru_h(const NruShape& s) { return s.parts * s.wide_m + 8; }

// D is the type of the products' operands, F that of states and arithmetic. H', M' and O' are the
// wide sizes, L a line, N its part [h, m].
template <class D, class F>
struct NruForward {
  NruShape shape;
  const D* zx;             // [B,T,H']: W x + b
  const D* uv;             // [H',N]
  const D* maps;           // [O',L]: E
  const F* norm;           // [2,H]: scale and shift; null: no layer norm
  const int64_t* lengths;  // [B], or null: every row has T steps
  D* z;                    // [B,T,H']
  D* rows;                 // [B*(T+1)+1,L]: the first line of a row is given, and all 1 and 0
  F* out;                  // [B,T,O']: alpha, beta, write, erase
  F* h;                    // [B,H]: given before the chunk, then after it
  F* m;                    // [B,M']: the same
};

template <class D, class F>
struct NruBackward {
  NruShape shape;
  const D *uv, *maps;
  const F* norm;
  const int64_t* lengths;
  const D* z;     // from forward; null without layer norm
  const D* rows;  // from forward
  const F* out;   // from forward
  const D* dy;    // [B,T,H], or null: zero
  const F* dh;    // [B,H]: the gradient of the last h, or null: zero
  F* dm;          // [B,M']: given that of the last m
  F* from_z;      // [B,H'+M']: P, given zeros
  F* from_out;    // [B,L]: G, given zeros
  D* dz;          // [B,T+1,H']: 0 at step T
  D* dout;        // [B,T+1,O']: 0 at step T
  F* dnorm;       // [2,B,H], given zeros; null without layer norm
};
// The gradients of the states before the chunk are P [:, :H], if the row has steps, and
// dm + P [:, H':] + G [:, :M'].

// The products of a step: hidden and maps, forward or backward.
struct NruProducts {
  cuda::ProductShape hidden, maps;

  NruProducts(const NruShape& s, DType dtype, DType exact, bool tf32, bool backward)
      : hidden(backward ? cuda::ProductShape{s.B, s.wide_h + s.wide_m, s.wide_h,
                                             (s.T + 1) * s.wide_h, nru_both(s), s.wide_h + s.wide_m,
                                             false, false, dtype, exact, tf32}
                        : cuda::ProductShape{s.B, s.wide_h, nru_both(s), (s.T + 1) * nru_line(s),
                                             nru_both(s), s.T * s.wide_h, false, true, dtype, dtype,
                                             tf32}),
        maps(backward
                 ? cuda::ProductShape{s.B, nru_line(s), s.wide_out, (s.T + 1) * s.wide_out,
                                      nru_line(s), nru_line(s), false, false, dtype, exact, tf32}
                 : cuda::ProductShape{s.B, s.wide_out, nru_line(s), (s.T + 1) * nru_line(s),
                                      nru_line(s), s.T * s.wide_out, false, true, dtype, exact,
                                      tf32}) {}
};

// The loops over time. `on` has the products, hidden(x, w, added, out) and maps(x, w, out), and
// runs the functions of row.h on every row.
template <class Machine, class D, class F>
void nru_steps(const Machine& on, const NruForward<D, F>& a) {
  const NruShape& s = a.shape;
  for (int64_t t = 0; t < s.T; ++t) {
    D* const line = a.rows + t * nru_line(s);
    on.hidden(line, a.uv, a.zx + t * s.wide_h, a.z + t * s.wide_h);
    on.hidden_rows(a, t);
    on.maps(line + s.wide_h, a.maps, a.out + t * s.wide_out);
    on.memory_rows(a, t);
  }
}

template <class Machine, class D, class F>
void nru_steps(const Machine& on, const NruBackward<D, F>& a) {
  const NruShape& s = a.shape;
  for (int64_t t = s.T - 1; t >= 0; --t) {
    on.memory_rows(a, t);
    on.maps(a.dout + t * s.wide_out, a.maps, a.from_out);
    on.hidden_rows(a, t);
    on.hidden(a.dz + t * s.wide_h, a.uv, static_cast<const F*>(nullptr), a.from_z);
  }
}

// One direction of a layer on the current device; what does not depend on the arrays is looked up
// once. Arrays are on the device and 16-byte aligned. Calls are asynchronous, allocate nothing and
// can be captured in a graph.
class NruCuda {
 public:
  NruCuda(const NruShape& shape, DType dtype, bool tf32, bool backward);
  ~NruCuda();
  NruCuda(const NruCuda&) = delete;
  NruCuda& operator=(const NruCuda&) = delete;
  int64_t workspace() const;  // bytes of scratch memory
  // The arrays in the order of NruForward or NruBackward, then the workspace.
  void run(const std::vector<void*>& arrays, uintptr_t stream) const;

 private:
  struct Prepared;
  const std::unique_ptr<const Prepared> prepared_;
};

}  // namespace tsm
