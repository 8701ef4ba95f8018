// Cells, programs, log_sum_exp and all_finite in every instruction set of this machine, compared
// with float64; a unit gives the same bits at any index.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#define TSM_ISA_NAME \
  float64  // an instruction set of this test: the cells in double, for comparison
#define TSM_GENERIC
#include "kernels/cpu/isa.h"
#include "kernels/cpu/stream/cell_step.h"
#include "support/check.h"

namespace {

using tsm::CellForward;
using tsm::CellStep;
using tsm::Instruction;
using tsm::Isa;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr CellForward<double> kExact[] = {
#define TSM_ENTRY(cell) tsm::CellRow<tsm::cells::cell, tsm::Scalar<double>, double>::table(),
    TSM_FOR_EACH_CELL(TSM_ENTRY)
#undef TSM_ENTRY
};

double random_in(double low, double high) {
  static std::mt19937 engine(1);
  return std::uniform_real_distribution<double>(low, high)(engine);
}

// A cell's inputs, all exactly representable in float; `run` uses some or all of the units.
struct Problem {
  int64_t H;
  std::vector<double> z, state, vectors, constants;
  double dt = float(0.7);

  template <class Cell>
  Problem(const Cell& cell, int64_t H) : H(H) {
    fill(z, cell.gates * H, -4, 4);
    fill(state, cell.states * H, 0, 2);
    fill(vectors, cell.vectors * H, 0.1, 0.9);
    fill(constants, cell.constants, 1e-3, 0.5);
  }
  static void fill(std::vector<double>& to, int64_t n, double low, double high) {
    for (int64_t i = 0; i < n; ++i) to.push_back(double(float(random_in(low, high))));
  }

  // The states after one step of units [first, first + count).
  template <class F>
  std::vector<F> run(const CellForward<F>& cell, int64_t first, int64_t count) const {
    const auto part = [&](const std::vector<double>& all) {
      std::vector<F> some;
      for (size_t at = 0; at < all.size(); at += size_t(H))
        some.insert(some.end(), all.begin() + int64_t(at) + first,
                    all.begin() + int64_t(at) + first + count);
      return some;
    };
    const std::vector<F> zs = part(z), v = part(vectors), k(constants.begin(), constants.end());
    std::vector<F> states = part(state), prepared(size_t(cell.prepared * count));
    std::vector<F*> pointers;
    for (int s = 0; s < cell.states; ++s) pointers.push_back(states.data() + s * count);
    cell.prepare(count, v.data(), k.data(), prepared.data());
    cell.forward({count, zs.data(), pointers.data(), prepared.data(), k.data(), F(dt)});
    return states;
  }
};

void test_cell(const CellForward<float>& cell, const CellForward<double>& exact) {
  CHECK((std::strcmp(cell.name, exact.name) == 0 && cell.states == exact.states));
  const int64_t H = 37;
  Problem p(cell, H);
  const std::vector<float> found = p.run(cell, 0, H);
  const std::vector<double> expected = p.run(exact, 0, H);
  for (size_t i = 0; i < found.size(); ++i) CHECK_CLOSE(found[i], expected[i], 4e-6);
  for (int64_t j = 0; j < H; ++j) {
    const std::vector<float> alone = p.run(cell, j, 1);
    for (int s = 0; s < cell.states; ++s)
      CHECK(std::memcmp(&alone[size_t(s)], &found[size_t(s * H + j)], 4) == 0);
  }
  p.z[5] = kNaN;  // of unit 5, in the first gate
  const std::vector<float> spoiled = p.run(cell, 0, H);
  CHECK(std::isnan(spoiled[5]));
  for (size_t i = 0; i < found.size(); ++i)
    if (int64_t(i) % H != 5) CHECK(spoiled[i] == found[i]);
}

// Each function as a program of its own: h = f(z).
void test_function(const Isa& isa, tsm::Operation op, double (*exact)(double)) {
  const Instruction code{op, 0, 0};
  const int32_t output = 3;
  const tsm::Program program = {1, 1, 0, 0, 0, 1, nullptr, &code, &output};
  std::vector<float> z, h(67);
  for (size_t j = 0; j < h.size(); ++j) z.push_back(float(random_in(-3, 3)));
  float* states[] = {h.data()};
  isa.interpret(program, {int64_t(h.size()), z.data(), states, nullptr, nullptr, 1});
  for (size_t j = 0; j < h.size(); ++j) {
    const double y = exact(z[j]);
    if (!std::isnan(y)) CHECK_CLOSE(h[j], y, 4e-6);
  }
}

// A program of several instructions; values: z 0 1, states 2 3, vector 4, constant 5, dt 6,
// literal 7, results from 8.
void test_program(const Isa& isa) {
  using Op = tsm::Operation;
  const Instruction code[] = {
      {Op::sigmoid, 0, 0},        // 8
      {Op::tanh, 1, 0},           // 9
      {Op::mul, 8, 2},            // 10
      {Op::add, 10, 6},           // 11
      {Op::exp, 9, 0},            // 12
      {Op::add, 12, 7},           // 13
      {Op::log, 13, 0},           // 14
      {Op::div, 14, 13},          // 15
      {Op::sub, 15, 4},           // 16
      {Op::neg, 16, 0},           // 17
      {Op::fast_sigmoid, 17, 0},  // 18
      {Op::softsign_gate, 1, 0},  // 19
      {Op::mul, 19, 5},           // 20
      {Op::add, 20, 18},          // 21
  };
  const float literal = 1.5f, constant = 0.25f, dt = 2;
  const int32_t outputs[] = {11, 21};
  const tsm::Program program = {2,        2,    1,      1, 1, int(sizeof(code) / sizeof(code[0])),
                                &literal, code, outputs};
  for (int64_t H : {1, 5, 16, 64, 67, 200}) {
    std::vector<float> z, h, c, v;
    for (int64_t j = 0; j < 2 * H; ++j) z.push_back(float(random_in(-3, 3)));
    for (int64_t j = 0; j < H; ++j) {
      h.push_back(float(random_in(-1, 1)));
      c.push_back(float(random_in(-1, 1)));
      v.push_back(float(random_in(0, 1)));
    }
    const std::vector<float> before = h;
    float* states[] = {h.data(), c.data()};
    isa.interpret(program, {H, z.data(), states, v.data(), &constant, dt});
    for (int64_t j = 0; j < H; ++j) {
      const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
      const double a = z[size_t(j)], b = z[size_t(H + j)], e = std::exp(std::tanh(b)) + literal;
      CHECK_CLOSE(h[size_t(j)], sigmoid(a) * before[size_t(j)] + dt, 4e-6);
      const double fast = sigmoid(std::sinh(-(std::log(e) / e - v[size_t(j)])));
      const double soft = 0.5 + 0.5 * (b / (2 + std::fabs(b)));
      CHECK_CLOSE(c[size_t(j)], soft * constant + fast, 4e-6);
    }
  }
}

void test_log_sum_exp(const Isa& isa) {
  const auto f = [&](const std::vector<float>& x) {
    return isa.log_sum_exp(x.data(), int64_t(x.size()));
  };
  for (int64_t n : {1, 2, 15, 16, 17, 63, 1000, 50000}) {
    std::vector<float> x;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      x.push_back(float(random_in(-30, 10)));
      sum += std::exp(double(x.back()));
    }
    CHECK_CLOSE(f(x), std::log(sum), 2e-6);
    for (float& value : x) value += 1000;
    CHECK_CLOSE(f(x), 1000 + std::log(sum), 2e-6);
    x[size_t(n / 2)] = kInfinity;
    CHECK(f(x) == kInfinity);
    for (int64_t at : {int64_t(0), n - 1}) {
      std::vector<float> bad = x;
      bad[size_t(at)] = kNaN;
      CHECK(std::isnan(f(bad)));
    }
  }
  CHECK(f({-3.5f}) == -3.5f);
  CHECK(f({-kInfinity, -kInfinity}) == -kInfinity);
  CHECK_CLOSE(f({-kInfinity, 2.0f, -kInfinity}), 2.0, 1e-6);
}

void test_all_finite(const Isa& isa) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const std::vector<float> all(70, kLargest);
  for (int64_t n = 0; n <= 70; ++n) {
    CHECK(isa.all_finite(all.data(), n));
    for (float value : {kNaN, -kNaN, kInfinity, -kInfinity})
      for (int64_t at = 0; at < 70; ++at) {
        std::vector<float> some = all;
        some[size_t(at)] = value;
        CHECK(isa.all_finite(some.data(), n) == (at >= n));
      }
  }
  for (float value : {0.0f, -0.0f, 1e-45f, -1e-40f, 1.0f, -kLargest})
    CHECK(isa.all_finite(&value, 1));
}

}  // namespace

TEST_CASE("cells") {
  for (const Isa* isa : tsm::host_isas()) {
    INFO("instruction set ", isa->name);
    CHECK(isa->cell_count > 0);
    for (int i = 0; i < isa->cell_count; ++i) test_cell(isa->cells[i], kExact[i]);
  }
}

TEST_CASE("programs and their functions") {
  for (const Isa* isa : tsm::host_isas()) {
    INFO("instruction set ", isa->name);
    test_program(*isa);
#define TSM_TEST(name) \
  test_function(*isa, tsm::Operation::name, tsm::Defined<tsm::Scalar<double>>::name);
    TSM_FOR_EACH_FUNCTION(TSM_TEST)
  }
}

TEST_CASE("reductions") {
  for (const Isa* isa : tsm::host_isas()) {
    INFO("instruction set ", isa->name);
    test_log_sum_exp(*isa);
    test_all_finite(*isa);
  }
}
