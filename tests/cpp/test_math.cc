// The math policies and bfloat16: values against long double, slopes against differences, NaN
// kept.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "cells/math.h"
#include "cells/simd.h"
#include "check.h"
#include "kernels/bfloat16.h"

namespace {

long double sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }

template <class T>
void test_values(double tolerance) {
  using M = tsm::Scalar<T>;
  for (double x = -20; x <= 20; x += 0.0625) {
    const long double at = T(x);
    CHECK_CLOSE(M::sigmoid(T(x)), double(sigmoid(at)), tolerance);
    CHECK_CLOSE(M::tanh(T(x)), double(std::tanh(at)), tolerance);
    CHECK_CLOSE(M::softsign_gate(T(x)), double((at / 2 / (1 + std::fabs(at / 2)) + 1) / 2),
                tolerance);
    CHECK_CLOSE(M::fast_sigmoid(T(x)), double(sigmoid(std::sinh(at))), tolerance * 16);
    CHECK_CLOSE(M::exp(T(x)), double(std::exp(at)), tolerance);
    CHECK_CLOSE(M::log(T(x * x + 1)), double(std::log((long double)T(x * x + 1))), tolerance);
    CHECK_CLOSE(M::fma(T(x), T(3), T(1)), double(at * 3 + 1), tolerance);
  }
}

void test_slopes() {
  using M = tsm::Scalar<double>;
  const double e = 1e-6;
  for (double x = -6; x <= 6; x += 0.125) {
    CHECK_CLOSE(M::fast_sigmoid_slope(x),
                (M::fast_sigmoid(x + e) - M::fast_sigmoid(x - e)) / (2 * e), 1e-7);
    CHECK_CLOSE(M::softsign_gate_slope(x),
                (M::softsign_gate(x + e) - M::softsign_gate(x - e)) / (2 * e), 1e-6);
  }
}

template <class T>
void test_extremes() {
  using M = tsm::Scalar<T>;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  CHECK(std::isnan(M::sigmoid(nan)) && std::isnan(M::tanh(nan)) && std::isnan(M::exp(nan)));
  CHECK(std::isnan(M::log(nan)) && std::isnan(M::fast_sigmoid(nan)));
  CHECK(std::isnan(M::softsign_gate(nan)) && std::isnan(M::fast_sigmoid_slope(nan)));
  CHECK(M::fast_sigmoid(T(1e4)) == T(1) && M::fast_sigmoid(T(-1e4)) == T(0));
  CHECK(M::fast_sigmoid_slope(T(1e4)) == T(0));
  CHECK(M::sigmoid(T(1e4)) == T(1) && M::sigmoid(T(-1e4)) == T(0));
}

// Distance of x from the exact value, in units of the last place of the exact value.
double ulps(float x, double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(double(x) - exact) / unit;
}

template <class Function, class Exact>
double worst_ulps(const Function& f, const Exact& exact, float low, float high, int count) {
  using M = tsm::SimdFloat;
  double worst = 0;
  for (int i = 0; i < count; i += M::kLanes) {
    float x[M::kLanes], y[M::kLanes];
    for (int lane = 0; lane < M::kLanes; ++lane)
      x[lane] = low + (high - low) * (float(i + lane) + 0.37f) / float(count);
    M::store(f(M::load(x, M::kLanes)), y, M::kLanes);
    for (int lane = 0; lane < M::kLanes; ++lane)
      worst = std::fmax(worst, ulps(y[lane], exact(double(x[lane]))));
  }
  return worst;
}

float one(float x, tsm::Floats (*f)(tsm::Floats)) {
  float y[tsm::SimdFloat::kLanes];
  tsm::SimdFloat::store(f(tsm::Floats(x)), y, tsm::SimdFloat::kLanes);
  return y[0];
}

void test_simd() {
  using M = tsm::SimdFloat;
  using V = tsm::Floats;
  const auto exp = [](V x) { return M::exp(x); };
  const auto log = [](V x) { return M::log(x); };
  const auto tanh = [](V x) { return M::tanh(x); };
  const auto sigmoid = [](V x) { return M::sigmoid(x); };
  const auto exact_exp = [](double x) { return std::exp(x); };
  const auto exact_log = [](double x) { return std::log(x); };
  const auto exact_tanh = [](double x) { return std::tanh(x); };
  const auto exact_sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  constexpr int n = 4'000'000;
  const double e = worst_ulps(exp, exact_exp, -87, 88, n);
  const double l =
      std::fmax(worst_ulps(log, exact_log, 1e-30f, 4, n), worst_ulps(log, exact_log, 4, 1e30f, n));
  const double t =
      std::fmax(worst_ulps(tanh, exact_tanh, -1, 1, n), worst_ulps(tanh, exact_tanh, -12, 12, n));
  const double s = worst_ulps(sigmoid, exact_sigmoid, -80, 20, n);
  std::printf("%d lanes: worst ulps exp %.2f, log %.2f, tanh %.2f, sigmoid %.2f\n", M::kLanes, e, l,
              t, s);
  CHECK(e < 1.5);
  CHECK(l < 2.5);
  CHECK(t < 2.5);
  CHECK(s < 3.0);

  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(one(100, M::exp) == inf && one(inf, M::exp) == inf && one(-200, M::exp) == 0 &&
        one(-inf, M::exp) == 0);
  CHECK(one(-100, M::exp) > 0);  // subnormal
  CHECK(one(0, M::log) == -inf && one(inf, M::log) == inf && std::isnan(one(-1, M::log)));
  CHECK_CLOSE(one(1e-40f, M::log), std::log(double(1e-40f)), 1e-6);
  CHECK(one(50, M::tanh) == 1 && one(-inf, M::tanh) == -1);
  for (auto f : {M::exp, M::log, M::tanh, M::sigmoid, M::fast_sigmoid, M::fast_sigmoid_slope,
                 M::softsign_gate, M::softsign_gate_slope})
    CHECK(std::isnan(one(nan, f)));
  for (float x = -12; x <= 12; x += 0.03125f) {
    CHECK_CLOSE(one(x, M::fast_sigmoid), tsm::Scalar<double>::fast_sigmoid(x), 2e-6);
    CHECK_CLOSE(one(x, M::fast_sigmoid_slope), tsm::Scalar<double>::fast_sigmoid_slope(x), 2e-6);
    CHECK_CLOSE(one(x, M::softsign_gate), tsm::Scalar<double>::softsign_gate(x), 2e-7);
    CHECK_CLOSE(one(x, M::softsign_gate_slope), tsm::Scalar<double>::softsign_gate_slope(x), 2e-7);
  }
  float part[M::kLanes + 1] = {};
  M::store(V(3.0f), part, 1);  // only what was asked for is written
  CHECK(part[0] == 3 && part[1] == 0);
}

void test_bfloat16() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {  // every value survives the way to float and back
    tsm::bfloat16 b;
    b.bits = uint16_t(bits);
    const float x = float(b);
    const tsm::bfloat16 again(x);
    CHECK(std::isnan(x) ? std::isnan(float(again)) : again.bits == b.bits);
  }
  CHECK(float(tsm::bfloat16(1.00390625f)) == 1.0f);       // halfway: to even
  CHECK(float(tsm::bfloat16(1.01171875f)) == 1.015625f);  // halfway: to even, upwards
  CHECK(std::isinf(float(tsm::bfloat16(3.4e38f))));       // beyond the largest: infinity
  CHECK(std::isnan(float(tsm::bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace

int main() {
  test_values<double>(1e-15);
  test_values<float>(4e-7);
  test_slopes();
  test_extremes<double>();
  test_extremes<float>();
  test_simd();
  test_bfloat16();
  return check::result();
}
