// The fused recurrence from C++: gradients compared with finite differences, bad arguments, rows
// past their length; and, for every instruction set of this machine, results that do not depend on
// threads or batches.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "core/aligned.h"
#include "core/bfloat16.h"
#include "core/error.h"
#include "kernels/cpu/isa.h"
#include "recurrence.h"
#include "support/check.h"

namespace {

using tsm::CellInfo;
using Values = std::vector<double>;
constexpr int64_t B = 5, T = 4, H = 3;

struct Problem {
  CellInfo cell;
  Values zx, u, state, vectors, dt, weight_y, weight_last;
  Values constants;
  std::vector<int64_t> lengths = {4, 2, 0, 1, 3};

  explicit Problem(const CellInfo& info) : cell(info) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(0.2, 0.8);
    const auto fill = [](Values& v, size_t n, const std::function<double()>& draw) {
      v.resize(n);
      for (double& x : v) x = draw();
    };
    const auto gauss = [&] { return normal(random); };
    const auto flat = [&] { return uniform(random); };
    fill(zx, B * T * cell.gates * H, gauss);
    fill(u, cell.gates * H * H, gauss);
    fill(state, cell.states * B * H, flat);
    fill(vectors, cell.vectors * H, flat);
    fill(dt, B * T, flat);
    fill(weight_y, B * T * H, gauss);
    fill(weight_last, cell.states * B * H, gauss);
    constants.assign(cell.constants, 1e-2);
  }

  tsm::RecurrenceForward arguments(Values& y, Values& last, Values& z, Values& saved_states) const {
    int reads = 0;
    for (int i = 0; i < cell.states; ++i) reads += (cell.reads >> i) & 1u;
    y.assign(B * T * H, 99);
    last.assign(cell.states * B * H, 99);
    z.assign(B * T * cell.gates * H, 99);
    saved_states.assign(reads * B * T * H, 99);
    return {{B, T, H},
            zx.data(),
            u.data(),
            state.data(),
            vectors.data(),
            constants.data(),
            cell.takes_dt ? dt.data() : nullptr,
            lengths.data(),
            y.data(),
            last.data(),
            z.data(),
            saved_states.data()};
  }

  double loss() const {
    Values y, last, z, saved_states;
    Recurrence<double>(cell.name, tsm::DType::kFloat64, H)
        .forward(arguments(y, last, z, saved_states));
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * weight_y[i];
    for (size_t i = 0; i < last.size(); ++i) sum += last[i] * weight_last[i];
    return sum;
  }

  double difference(double& x) const {
    const double e = 1e-6, before = x;
    x = before + e;
    const double up = loss();
    x = before - e;
    const double down = loss();
    x = before;
    return (up - down) / (2 * e);
  }
};

void test_gradients(const CellInfo& info) {
  Problem p(info);
  Values y, last, z, saved_states;
  Recurrence<double> recurrence(info.name, tsm::DType::kFloat64, H);
  const tsm::RecurrenceForward forward = p.arguments(y, last, z, saved_states);
  recurrence.forward(forward);
  Values grad_z(p.zx.size()), grad_state(p.state.size()), grad_vectors(p.vectors.size());
  recurrence.backward(forward, {{B, T, H},
                                p.u.data(),
                                p.vectors.data(),
                                p.constants.data(),
                                info.takes_dt ? p.dt.data() : nullptr,
                                p.lengths.data(),
                                z.data(),
                                saved_states.data(),
                                p.weight_y.data(),
                                p.weight_last.data(),
                                grad_z.data(),
                                grad_state.data(),
                                grad_vectors.data()});
  for (size_t i = 0; i < p.zx.size(); ++i) CHECK_CLOSE(grad_z[i], p.difference(p.zx[i]), 1e-7);
  for (size_t i = 0; i < p.state.size(); ++i)
    CHECK_CLOSE(grad_state[i], p.difference(p.state[i]), 1e-7);
  for (size_t i = 0; i < p.vectors.size(); ++i)
    CHECK_CLOSE(grad_vectors[i], p.difference(p.vectors[i]), 1e-7);
}

void test_lengths(const CellInfo& info) {
  const Problem p(info);
  Values y, last, z, saved_states;
  Recurrence<double>(info.name, tsm::DType::kFloat64, H)
      .forward(p.arguments(y, last, z, saved_states));
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < T; ++t)
      for (int64_t j = 0; j < H; ++j) CHECK((y[(b * T + t) * H + j] == 0) == (t >= p.lengths[b]));
  for (int64_t j = 0; j < H; ++j)
    CHECK(last[2 * H + j] == p.state[2 * H + j]);  // a row of length 0
}

template <class Spoil>
void expect_error(const char* words, const Spoil& spoil) {
  const CellInfo& info = tsm::compiled_cells().front();
  Problem p(info);
  Values y, last, z, saved_states;
  tsm::RecurrenceForward a = p.arguments(y, last, z, saved_states);
  std::string cell = info.name, message;
  spoil(cell, a);
  try {
    Recurrence<double>(cell, tsm::DType::kFloat64, H).forward(a);
  } catch (const tsm::Error& error) {
    message = error.what();
  }
  CHECK(message.find(words) != std::string::npos);
}

TEST_CASE("errors") {
  static const std::vector<int64_t> too_long = {5, 0, 0, 0, 0};
  using A = tsm::RecurrenceForward;
  expect_error("not compiled in", [](std::string& cell, A&) { cell = "nothing"; });
  expect_error("lengths[0] = 5", [](std::string&, A& a) { a.lengths = too_long.data(); });
  expect_error("B, T, H, I = 5, 4, 0, ", [](std::string&, A& a) { a.shape.H = 0; });
  expect_error("is null", [](std::string&, A& a) { a.zx = nullptr; });
  expect_error("is null", [](std::string&, A& a) { a.y = nullptr; });
}

// Arrays of one layer in type D, with states in F, forward and backward.
template <class D, class F>
struct Run {
  const CellInfo& cell;
  int64_t B, T, H;
  std::vector<D> zx, u, grad_y, y, grad_z;
  std::vector<F> state, vectors, dt, grad_last, last, grad_state, grad_vectors;
  std::vector<int64_t> lengths;

  Run(const CellInfo& cell, int64_t B, int64_t T, int64_t H) : cell(cell), B(B), T(T), H(H) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto draw = [&](auto& to, int64_t n, float scale, float shift) {
      using E = typename std::decay_t<decltype(to)>::value_type;
      for (int64_t i = 0; i < n; ++i)
        to.push_back(E(float(tsm::bfloat16(shift + scale * normal(random)))));
    };
    const int64_t GH = cell.gates * H;
    draw(zx, B * T * GH, 1, 0);
    draw(u, GH * H, 1 / std::sqrt(float(H)), 0);
    draw(grad_y, B * T * H, 1, 0);
    draw(state, cell.states * B * H, 0, 0.5f);
    draw(vectors, cell.vectors * H, 0.1f, 0.5f);
    draw(dt, B * T, 0.01f, 1);
    draw(grad_last, cell.states * B * H, 1, 0);
    for (int64_t b = 0; b < B; ++b) lengths.push_back(b % 4 == 1 ? b % (T + 1) : T);
  }

  void go(tsm::DType dtype, int threads) {
    int reads = 0;
    for (int i = 0; i < cell.states; ++i) reads += (cell.reads >> i) & 1u;
    std::vector<F> z(zx.size()), saved_states(size_t(reads * B * T * H));
    const std::vector<double> constants(size_t(cell.constants), 1e-2);
    y.assign(grad_y.size(), D());
    grad_z.assign(zx.size(), D());
    last.assign(state.size(), F());
    grad_state.assign(state.size(), F());
    grad_vectors.assign(vectors.size(), F());
    const F* times = cell.takes_dt ? dt.data() : nullptr;
    const tsm::RecurrenceShape shape = {B, T, H, threads};
    const tsm::RecurrenceForward forward = {
        shape,        zx.data(),      u.empty() ? nullptr : u.data(),
        state.data(), vectors.data(), constants.data(),
        times,        lengths.data(), y.data(),
        last.data(),  z.data(),       saved_states.data()};
    Recurrence<D> recurrence(cell.name, dtype, H);
    recurrence.forward(forward);
    recurrence.backward(
        forward, {shape, forward.weight_h, vectors.data(), constants.data(), times, lengths.data(),
                  z.data(), saved_states.data(), grad_y.data(), grad_last.data(), grad_z.data(),
                  grad_state.data(), grad_vectors.data()});
  }

  // Row b alone.
  Run row(int64_t b) const {
    Run one = *this;
    const auto cut = [&](auto& from, int64_t width) {
      auto some = from;
      some.clear();
      const int64_t times = int64_t(from.size()) / (B * width);
      for (int64_t i = 0; i < times; ++i)
        some.insert(some.end(), from.begin() + (i * B + b) * width,
                    from.begin() + (i * B + b + 1) * width);
      from = some;
    };
    one.B = 1;
    cut(one.zx, T * cell.gates * H), cut(one.grad_z, T * cell.gates * H);
    cut(one.y, T * H), cut(one.grad_y, T * H), cut(one.dt, T), cut(one.lengths, 1);
    cut(one.state, H), cut(one.last, H), cut(one.grad_last, H), cut(one.grad_state, H);
    return one;
  }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class A, class B>
void check_close(const std::vector<A>& found, const std::vector<B>& expected, double tolerance,
                 const char* what) {
  double worst = 0, largest = 1e-3;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = std::fabs(double(float(found[i])) - double(expected[i]));
    worst = difference <= worst ? worst : difference;  // also NaN
    largest = std::fmax(largest, std::fabs(double(expected[i])));
  }
  if (!(worst <= tolerance * largest))
    std::fprintf(stderr, "%s: off by %g\n", what, worst / largest);
  CHECK(worst <= tolerance * largest);
}

// A layer without U equals one with U = 0.
template <class D>
void test_without_u(const CellInfo& info, tsm::DType dtype) {
  Run<D, float> none(info, 7, 5, 33), zeros = none;
  none.u.clear();
  std::fill(zeros.u.begin(), zeros.u.end(), D());
  none.go(dtype, 2);
  zeros.go(dtype, 2);
  CHECK((same_bits(none.y, zeros.y) && same_bits(none.last, zeros.last)));
  CHECK((same_bits(none.grad_z, zeros.grad_z) && same_bits(none.grad_state, zeros.grad_state)));
  CHECK(same_bits(none.grad_vectors, zeros.grad_vectors));
}

// Results agree with float64, and have the same bits for any number of threads and for each row
// alone.
template <class D>
void test_level(const CellInfo& info, tsm::DType dtype, int64_t H, double tolerance) {
  const int64_t rows = 7, steps = H < 100 ? 5 : 2;
  Run<double, double> exact(info, rows, steps, H);
  Run<D, float> run(info, rows, steps, H);
  exact.go(tsm::DType::kFloat64, 1);
  run.go(dtype, 1);
  check_close(run.y, exact.y, tolerance, "y");
  check_close(run.last, exact.last, tolerance, "last");
  check_close(run.grad_z, exact.grad_z, tolerance, "grad_z");
  check_close(run.grad_state, exact.grad_state, tolerance, "grad_state");
  check_close(run.grad_vectors, exact.grad_vectors, 4 * tolerance, "grad_vectors");
  for (const int threads : {2, 3}) {
    Run<D, float> shared(info, rows, steps, H);
    shared.go(dtype, threads);
    CHECK((same_bits(shared.y, run.y) && same_bits(shared.last, run.last)));
    CHECK((same_bits(shared.grad_z, run.grad_z) && same_bits(shared.grad_state, run.grad_state)));
    CHECK(same_bits(shared.grad_vectors, run.grad_vectors));
  }
  for (const int64_t b : {int64_t(0), int64_t(1), rows - 1}) {
    const Run<D, float> expected = run.row(b);
    Run<D, float> alone = expected;
    alone.go(dtype, 2);
    CHECK((same_bits(alone.y, expected.y) && same_bits(alone.last, expected.last)));
    CHECK(same_bits(alone.grad_z, expected.grad_z));
    CHECK(same_bits(alone.grad_state, expected.grad_state));
  }
}

// Panels may be packed by different threads (isa.h).
void test_packing_in_parts(const tsm::Isa& isa, int64_t more) {
  for (const tsm::Weights kind : {tsm::Weights::kFloat32, tsm::Weights::kBFloat16}) {
    const tsm::MatrixKernels& k = isa.matrix[int(kind)];
    const int64_t outputs = 3 * k.panel + more, inputs = 37;
    std::vector<float> w;
    for (int64_t i = 0; i < outputs * inputs; ++i) w.push_back(float(i % 101) / 7);
    for (const bool transposed : {false, true}) {
      const int64_t row = transposed ? 1 : inputs, column = transposed ? outputs : 1;
      const auto source = [&](int64_t first, int64_t count) {
        return tsm::MatrixSource{tsm::MatrixSource::kFloat32,
                                 w.data() + first * row,
                                 count,
                                 inputs,
                                 row,
                                 column,
                                 nullptr};
      };
      const auto bytes = [&](int64_t n) { return size_t(k.packed_bytes(n, inputs)); };
      tsm::Aligned<char> whole(int64_t(bytes(outputs))), parts(int64_t(bytes(outputs)));
      k.pack(source(0, outputs), whole.data());
      k.pack(source(0, k.panel), parts.data());
      k.pack(source(k.panel, outputs - k.panel), parts.data() + bytes(k.panel));
      CHECK(std::memcmp(whole.data(), parts.data(), bytes(outputs)) == 0);
    }
  }
}

}  // namespace

TEST_CASE("every cell at every level") {
  for (const CellInfo& cell : tsm::compiled_cells()) {
    test_gradients(cell);
    test_lengths(cell);
  }
  for (const tsm::Isa* isa : tsm::host_isas()) {
    INFO("instruction set ", isa->name);
    setenv("TSM_ISA", isa->name, 1);
    for (int64_t more : {0, 3, 20, 40}) test_packing_in_parts(*isa, more);
    const auto test = [](const CellInfo& cell, int64_t H) {
      test_level<float>(cell, tsm::DType::kFloat32, H, 2e-5);
      test_level<tsm::bfloat16>(cell, tsm::DType::kBFloat16, H, 5e-2);
    };
    for (const CellInfo& cell : tsm::compiled_cells()) {
      test(cell, 3);
      test(cell, 33);
      test_without_u<float>(cell, tsm::DType::kFloat32);
      test_without_u<tsm::bfloat16>(cell, tsm::DType::kBFloat16);
    }
    test(tsm::compiled_cells().back(), 420);  // large enough for products that threads share
  }
}
