// The loop over the steps of a chunk, and how threads split its work.
//
// A pass visits the steps in its own order. A step of a row consists of `before_product`, the
// product with the recurrent matrix, and `after_product`. Rows of the batch are independent, and so
// are the outputs of one product. That gives two ways to split the work:
//   by rows      each thread takes some rows through all steps, without synchronisation;
//   by outputs   all threads share each product, with two barriers per step.
// When splitting by outputs, a matrix that exceeds one core's cache is read once per step instead
// of once per step and thread. The result is the same, bit for bit.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/thread_pool.h"
#include "kernels/cpu/product/packed_matrix.h"

namespace tsm {

struct WorkSplit {
  bool by_outputs;
  int64_t parts;  // of the rows

  static WorkSplit choose(int64_t B, int64_t matrix_bytes, int threads) {
    constexpr int64_t kOwnCache = 1 << 20;  // bytes: a private L2
    constexpr int64_t kManyRows = 48;       // enough work per number read
    constexpr int64_t kRows = 32;           // rows whose step fits in cache next to the matrix
    const int64_t each = (B + threads - 1) / threads;
    if (threads > 1 && matrix_bytes > kOwnCache && each < kManyRows)
      return {true, std::min<int64_t>(B, 4 * threads)};
    const int64_t rounds = (each + kRows - 1) / kRows;
    return {false, std::min<int64_t>(B, rounds * threads)};
  }
};

// Pass:
//   start_rows(b, rows)                  before the steps of rows from b on
//   project_inputs(b, rows, t, steps)    before some of their steps, at most `block` at a time
//   before_product(b, t), after_product(b, t)
//   multiply(b, rows, t, p, q)           the product of rows from b on, outputs of panels [p, q)
//   finish_rows(b, rows, steps)          after the steps
//   steps(b, rows)                       how many steps those rows have
//   kForward                             whether time runs forward
template <class Pass>
void time_loop(const Pass& pass, int64_t B, const PackedMatrix& u, const WorkSplit& work,
               ThreadPool& pool) {
  const int64_t panels = u.panels();
  const auto rows = [&](const auto& f) {  // f(first, last) for rows of the batch
    pool.run(work.parts,
             [&](int64_t part) { f(B * part / work.parts, B * (part + 1) / work.parts); });
  };
  const auto step = [](int64_t i, int64_t steps) { return Pass::kForward ? i : steps - 1 - i; };

  if (!work.by_outputs)
    return rows([&](int64_t first, int64_t last) {
      const int64_t steps = pass.steps(first, last - first);
      pass.start_rows(first, last - first);
      for (int64_t i = 0; i < steps; ++i) {
        const int64_t t = step(i, steps);
        if (i % pass.block() == 0)
          pass.project_inputs(first, last - first, t, std::min(pass.block(), steps - i));
        for (int64_t b = first; b < last; ++b) pass.before_product(b, t);
        if (panels > 0) pass.multiply(first, last - first, t, 0, panels);
        for (int64_t b = first; b < last; ++b) pass.after_product(b, t);
      }
      pass.finish_rows(first, last - first, steps);
    });

  const int64_t steps = pass.steps(0, B);
  // Use small parts, so that all threads finish a product at about the same time.
  const int64_t products = std::min<int64_t>(panels, 16 * pool.threads());
  for (int64_t i = 0; i <= steps; ++i) {
    rows([&](int64_t first, int64_t last) {
      if (i == 0) {
        pass.start_rows(first, last - first);
        const int64_t t = steps * first / B, end = steps * last / B;  // a share of the steps
        if (t < end) pass.project_inputs(0, B, t, end - t);
      }
      for (int64_t b = first; b < last; ++b) {
        if (i > 0) pass.after_product(b, step(i - 1, steps));
        if (i < steps) pass.before_product(b, step(i, steps));
      }
      if (i == steps) pass.finish_rows(first, last - first, steps);
    });
    if (i == steps) break;
    pool.run(products, [&](int64_t part) {
      pass.multiply(0, B, step(i, steps), panels * part / products, panels * (part + 1) / products);
    });
  }
}

}  // namespace tsm
