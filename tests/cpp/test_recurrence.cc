// The fused recurrence from C++: gradients against differences, bad arguments, rows past their
// length.
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "check.h"
#include "kernels/error.h"
#include "kernels/recurrence.h"

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

  tsm::RecurrenceForward arguments(Values& y, Values& last, Values& z, Values& trail) const {
    int reads = 0;
    for (int i = 0; i < cell.states; ++i) reads += (cell.reads >> i) & 1u;
    y.assign(B * T * H, 99);
    last.assign(cell.states * B * H, 99);
    z.assign(B * T * cell.gates * H, 99);
    trail.assign(reads * B * T * H, 99);
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
            trail.data()};
  }

  double loss() const {
    Values y, last, z, trail;
    tsm::recurrence_forward(cell.name, tsm::DType::kFloat64, arguments(y, last, z, trail));
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
  Values y, last, z, trail;
  tsm::recurrence_forward(info.name, tsm::DType::kFloat64, p.arguments(y, last, z, trail));
  Values grad_z(p.zx.size()), grad_state(p.state.size()), grad_vectors(p.vectors.size());
  tsm::recurrence_backward(info.name, tsm::DType::kFloat64,
                           {{B, T, H},
                            p.u.data(),
                            p.vectors.data(),
                            p.constants.data(),
                            info.takes_dt ? p.dt.data() : nullptr,
                            p.lengths.data(),
                            z.data(),
                            trail.data(),
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
  Values y, last, z, trail;
  tsm::recurrence_forward(info.name, tsm::DType::kFloat64, p.arguments(y, last, z, trail));
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
  Values y, last, z, trail;
  tsm::RecurrenceForward a = p.arguments(y, last, z, trail);
  std::string cell = info.name, message;
  spoil(cell, a);
  try {
    tsm::recurrence_forward(cell, tsm::DType::kFloat64, a);
  } catch (const tsm::Error& error) {
    message = error.what();
  }
  CHECK(message.find(words) != std::string::npos);
}

void test_errors() {
  static const std::vector<int64_t> too_long = {5, 0, 0, 0, 0};
  using A = tsm::RecurrenceForward;
  expect_error("not compiled in", [](std::string& cell, A&) { cell = "nothing"; });
  expect_error("lengths[0] = 5", [](std::string&, A& a) { a.lengths = too_long.data(); });
  expect_error("H >= 1", [](std::string&, A& a) { a.shape.H = 0; });
  expect_error("is null", [](std::string&, A& a) { a.zx = nullptr; });
  expect_error("is null", [](std::string&, A& a) { a.weight_h = nullptr; });
}

}  // namespace

int main() {
  for (const CellInfo& cell : tsm::compiled_cells()) {
    test_gradients(cell);
    test_lengths(cell);
  }
  test_errors();
  return check::result();
}
