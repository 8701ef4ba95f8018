// A whole layer from C++, in every instruction set of this machine: compared with plain float64
// loops around the float64 recurrence; any number of threads gives the same bits.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "core/bfloat16.h"
#include "core/error.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/train/isa_training.h"
#include "recurrence.h"
#include "support/check.h"

namespace {

using tsm::bfloat16;
using tsm::CellInfo;
using Values = std::vector<double>;

// 1120 rows of [B,T] are more than one pass over the weight gradients takes. With so many steps,
// one thread computes z in parts, but three threads do not.
constexpr int64_t B = 7, T = 160, I = 19, H = 21;

int64_t reads(const CellInfo& cell) {
  int64_t count = 0;
  for (int i = 0; i < cell.states; ++i) count += (cell.reads >> i) & 1u;
  return count;
}

// The inputs of a layer; every number is exact in bfloat16.
struct Problem {
  const CellInfo& cell;
  int64_t GH;
  Values x, w, b, u, state, vectors, grad_y, grad_last, constants;
  std::vector<int64_t> lengths;

  explicit Problem(const CellInfo& cell) : cell(cell), GH(cell.gates * H) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const auto draw = [&](Values& to, int64_t n, float scale, float shift) {
      for (int64_t i = 0; i < n; ++i) to.push_back(float(bfloat16(shift + scale * normal(random))));
    };
    draw(x, B * T * I, 1, 0);
    draw(w, GH * I, 0.2f, 0);
    draw(b, GH, 1, 0);
    draw(u, GH * H, 0.2f, 0);
    draw(state, cell.states * B * H, 0, 0.5f);
    draw(vectors, cell.vectors * H, 0.1f, 0.5f);
    draw(grad_y, B * T * H, 1, 0);
    draw(grad_last, cell.states * B * H, 1, 0);
    constants.assign(size_t(cell.constants), 1e-2);
    for (int64_t row = 0; row < B; ++row) lengths.push_back(row % 3 == 1 ? 4 * row : T);
  }
};

// The results; `arrays` lists them in the order of declaration.
struct Found {
  Values y, last, grad_x, grad_w, grad_b, grad_u, grad_state, grad_vectors;
  std::vector<const Values*> arrays() const {
    return {&y, &last, &grad_x, &grad_w, &grad_b, &grad_u, &grad_state, &grad_vectors};
  }
};
const char* const kNames[] = {"y",         "last",          "grad_x",     "grad_weight_x",
                              "grad_bias", "grad_weight_h", "grad_state", "grad_vectors"};

Found by_loops(const Problem& p, bool from_zero) {
  const int64_t GH = p.GH, S = p.cell.states;
  const Values zero(p.state.size());
  const double* state = from_zero ? zero.data() : p.state.data();
  Values zx(size_t(B * T * GH)), z(zx.size()), grad_z(zx.size());
  Values saved_states(size_t(reads(p.cell) * B * T * H));
  for (int64_t r = 0; r < B * T; ++r)
    for (int64_t i = 0; i < GH; ++i) {
      double sum = p.b[size_t(i)];
      for (int64_t k = 0; k < I; ++k) sum += p.w[size_t(i * I + k)] * p.x[size_t(r * I + k)];
      zx[size_t(r * GH + i)] = sum;
    }
  Found f;
  f.y.resize(size_t(B * T * H)), f.last.resize(size_t(S * B * H));
  f.grad_state.resize(f.last.size()), f.grad_vectors.resize(p.vectors.size());
  const tsm::RecurrenceForward forward = {{B, T, H},     zx.data(),        p.u.data(),
                                          state,         p.vectors.data(), p.constants.data(),
                                          nullptr,       p.lengths.data(), f.y.data(),
                                          f.last.data(), z.data(),         saved_states.data()};
  Recurrence<double> recurrence(p.cell.name, tsm::DType::kFloat64, H);
  recurrence.forward(forward);
  recurrence.backward(forward, {{B, T, H},
                                p.u.data(),
                                p.vectors.data(),
                                p.constants.data(),
                                nullptr,
                                p.lengths.data(),
                                z.data(),
                                saved_states.data(),
                                p.grad_y.data(),
                                p.grad_last.data(),
                                grad_z.data(),
                                f.grad_state.data(),
                                f.grad_vectors.data()});
  f.grad_x.resize(p.x.size()), f.grad_w.resize(p.w.size());
  f.grad_b.resize(p.b.size()), f.grad_u.resize(p.u.size());
  for (int64_t r = 0; r < B * T; ++r) {
    const double* h = r % T > 0 ? &f.y[size_t((r - 1) * H)] : state + r / T * H;
    for (int64_t i = 0; i < GH; ++i) {
      const double dz = grad_z[size_t(r * GH + i)];
      f.grad_b[size_t(i)] += dz;
      for (int64_t k = 0; k < I; ++k) {
        f.grad_x[size_t(r * I + k)] += dz * p.w[size_t(i * I + k)];
        f.grad_w[size_t(i * I + k)] += dz * p.x[size_t(r * I + k)];
      }
      for (int64_t j = 0; j < H; ++j) f.grad_u[size_t(i * H + j)] += dz * h[j];
    }
  }
  return f;
}

template <class E>
std::vector<E> as(const Values& from) {
  if constexpr (std::is_same_v<E, double>) {
    return from;
  } else {
    std::vector<E> to;
    for (const double v : from) to.push_back(E(float(v)));
    return to;
  }
}
template <class E>
Values numbers(const std::vector<E>& from) {
  if constexpr (std::is_same_v<E, double>) {
    return from;
  } else {
    Values to;
    for (const E v : from) to.push_back(double(float(v)));
    return to;
  }
}

void check_same(const Found& a, const Found& b) {
  for (size_t n = 0; n < a.arrays().size(); ++n) CHECK(*a.arrays()[n] == *b.arrays()[n]);
}

// The layer with elements D, x of type X and weights of type W.
template <class D, class X, class W>
Found by_layer(const Problem& p, tsm::DType dtype, int threads, bool from_zero) {
  using F = std::conditional_t<std::is_same_v<D, double>, double, float>;
  const int64_t GH = p.GH, S = p.cell.states;
  const auto x = as<X>(p.x);
  const auto w = as<W>(p.w), b = as<W>(p.b), u = as<W>(p.u);
  const auto grad_y = as<D>(p.grad_y);
  const auto state = as<F>(p.state), vectors = as<F>(p.vectors);
  const auto grad_last = as<F>(p.grad_last);
  std::vector<D> y(size_t(B * T * H), D(9.0f));
  std::vector<F> last(size_t(S * B * H), 9), z(size_t(B * T * GH), 9), grad_state(last);
  std::vector<F> saved_states(size_t(reads(p.cell) * B * T * H), 9), grad_vectors(vectors);
  std::vector<X> grad_x(x.size(), X(9.0f));
  std::vector<W> grad_w(w.size(), W(9.0f)), grad_b(b.size(), W(9.0f)), grad_u(u.size(), W(9.0f));
  const tsm::RecurrenceShape shape = {B, T, H, threads};
  const F* const first = from_zero ? nullptr : state.data();
  const tsm::LayerInput input = {
      I, x.data(), w.data(), b.data(), sizeof(X) == sizeof(F), sizeof(W) == sizeof(F)};
  tsm::layer_forward(p.cell.name, dtype,
                     {{shape, nullptr, u.data(), first, vectors.data(), p.constants.data(), nullptr,
                       p.lengths.data(), y.data(), last.data(), z.data(), saved_states.data()},
                      input});
  const Values kept = numbers(y);
  // The same forward pass without saving what backward needs.
  tsm::layer_forward(p.cell.name, dtype,
                     {{shape, nullptr, u.data(), first, vectors.data(), p.constants.data(), nullptr,
                       p.lengths.data(), y.data(), last.data(), nullptr, nullptr},
                      input});
  CHECK(numbers(y) == kept);
  const auto backward = [&](F* grad_z) -> Found {
    tsm::layer_backward(p.cell.name, dtype,
                        {{shape, u.data(), vectors.data(), p.constants.data(), nullptr,
                          p.lengths.data(), z.data(), saved_states.data(), grad_y.data(),
                          grad_last.data(), grad_z, grad_state.data(), grad_vectors.data()},
                         input,
                         first,
                         y.data(),
                         grad_x.data(),
                         grad_w.data(),
                         grad_b.data(),
                         grad_u.data()});
    return {numbers(y),      numbers(last),   numbers(grad_x),     numbers(grad_w),
            numbers(grad_b), numbers(grad_u), numbers(grad_state), numbers(grad_vectors)};
  };
  const Found found = backward(nullptr);
  check_same(backward(z.data()), found);  // it overwrites z, so it comes last
  return found;
}

void check_close(const Found& found, const Found& expected, double tolerance) {
  for (size_t n = 0; n < found.arrays().size(); ++n) {
    const Values &f = *found.arrays()[n], &e = *expected.arrays()[n];
    double worst = 0, largest = 1e-3;
    CHECK(f.size() == e.size());
    for (size_t i = 0; i < f.size(); ++i) {
      const double difference = std::fabs(f[i] - e[i]);
      worst = difference <= worst ? worst : difference;  // also NaN
      largest = std::fmax(largest, std::fabs(e[i]));
    }
    if (!(worst <= tolerance * largest))
      std::fprintf(stderr, "%s: off by %g\n", kNames[n], worst / largest);
    CHECK(worst <= tolerance * largest);
  }
}

template <class D, class X, class W>
void test_layer(const Problem& p, tsm::DType dtype, const Found& exact, bool from_zero,
                double tolerance) {
  const Found found = by_layer<D, X, W>(p, dtype, 1, from_zero);
  check_close(found, exact, tolerance);
  for (const int threads : {2, 3})
    check_same(by_layer<D, X, W>(p, dtype, threads, from_zero), found);
}

void test_transpose(const tsm::Isa& isa) {
  constexpr int64_t rows = 37, columns = 21, stride = 23, to_stride = 40;
  std::vector<float> from(size_t(rows * stride)), to(size_t(columns * to_stride), -1);
  for (size_t i = 0; i < from.size(); ++i) from[i] = float(i);
  tsm::training_of(isa).transpose(from.data(), stride, rows, columns, to.data(), to_stride);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < to_stride; ++i)
      CHECK(to[size_t(j * to_stride + i)] == (i < rows ? from[size_t(i * stride + j)] : -1));
}

void test_add_rows(const tsm::Isa& isa) {
  constexpr int64_t rows = 7, columns = 37, stride = 41;
  std::vector<float> from(size_t(rows * stride)), sums(size_t(columns) + 1, 0.1f);
  for (size_t i = 0; i < from.size(); ++i) from[i] = 1.0f / float(i + 3);
  std::vector<float> expected = sums;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) expected[size_t(j)] += from[size_t(i * stride + j)];
  tsm::training_of(isa).add_rows(from.data(), stride, rows, columns, sums.data());
  CHECK(sums == expected);
}

TEST_CASE("errors") {
  const Problem p(tsm::compiled_cells().front());
  const float one = 1;
  const auto message = [&](int64_t steps, const void* x) -> std::string {
    float y = 0;
    try {
      tsm::layer_forward(p.cell.name, tsm::DType::kFloat32,
                         {{{1, steps, 1},
                           nullptr,
                           &one,
                           nullptr,
                           &one,
                           p.constants.data(),
                           nullptr,
                           nullptr,
                           &y,
                           &y,
                           nullptr,
                           nullptr},
                          {1, x, &one, &one, true, true}});
    } catch (const tsm::Error& error) {
      return error.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  CHECK(has(message(0, &one), "accepted: 1 or more"));
  CHECK(has(message(1, nullptr), "x or weight_x is null"));
}

}  // namespace

TEST_CASE("layers of every cell at every level") {
  for (const tsm::Isa* isa : tsm::host_isas()) {
    INFO("instruction set ", isa->name);
    setenv("TSM_ISA", isa->name, 1);
    test_transpose(*isa);
    test_add_rows(*isa);
    for (const CellInfo& cell : tsm::compiled_cells()) {
      const Problem p(cell);
      const Found exact = by_loops(p, false), from_zero = by_loops(p, true);
      using tsm::DType;
      test_layer<double, double, double>(p, DType::kFloat64, exact, false, 1e-13);
      test_layer<double, double, double>(p, DType::kFloat64, from_zero, true, 1e-13);
      test_layer<float, float, float>(p, DType::kFloat32, exact, false, 2e-5);
      test_layer<float, float, float>(p, DType::kFloat32, from_zero, true, 2e-5);
      test_layer<bfloat16, bfloat16, bfloat16>(p, DType::kBFloat16, exact, false, 5e-2);
      test_layer<bfloat16, float, float>(p, DType::kBFloat16, from_zero, true, 5e-2);
      test_layer<bfloat16, bfloat16, float>(p, DType::kBFloat16, exact, false, 5e-2);
    }
  }
}
