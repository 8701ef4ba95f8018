// The math functions of every instruction set of this machine, and bfloat16: values compared with
// long double (some in ulp), slopes with finite differences; NaN is preserved.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cells/generated/primitives.h"
#include "core/bfloat16.h"
#include "isa_math.h"
#include "kernels/built_isas.h"
#include "kernels/cpu/isa.h"
#include "support/check.h"

namespace tsm {
#define TSM_DECLARE(isa)      \
  namespace isa {             \
  extern const IsaMath kMath; \
  }
TSM_FOR_EACH_ISA(TSM_DECLARE)
}  // namespace tsm

namespace {

struct Exact {
  const char* name;
  double (*run)(double x);
};
#define TSM_ENTRY(name) {#name, tsm::Defined<tsm::Scalar<double>>::name},
constexpr Exact kExact[] = {TSM_FOR_EACH_FUNCTION(TSM_ENTRY) TSM_FOR_EACH_SLOPE(TSM_ENTRY)};
#undef TSM_ENTRY

long double sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }

template <class T>
void test_values(double tolerance) {
  using M = tsm::Defined<tsm::Scalar<T>>;
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

TEST_CASE("slopes") {
  using M = tsm::Defined<tsm::Scalar<double>>;
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
  using M = tsm::Defined<tsm::Scalar<T>>;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  CHECK((std::isnan(M::sigmoid(nan)) && std::isnan(M::tanh(nan)) && std::isnan(M::exp(nan))));
  CHECK((std::isnan(M::log(nan)) && std::isnan(M::fast_sigmoid(nan))));
  CHECK((std::isnan(M::softsign_gate(nan)) && std::isnan(M::fast_sigmoid_slope(nan))));
  CHECK((M::fast_sigmoid(T(1e4)) == T(1) && M::fast_sigmoid(T(-1e4)) == T(0)));
  CHECK(M::fast_sigmoid_slope(T(1e4)) == T(0));
  CHECK((M::sigmoid(T(1e4)) == T(1) && M::sigmoid(T(-1e4)) == T(0)));
}

// Distance of x from the exact value, in ulp of the exact value.
double ulps(float x, double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(double(x) - exact) / unit;
}

// The functions of one instruction set by name.
class Simd {
 public:
  explicit Simd(const char* isa) {
#define TSM_FIND(name) \
  if (std::strcmp(isa, #name) == 0) math_ = &tsm::name::kMath;
    TSM_FOR_EACH_ISA(TSM_FIND)
  }
  int lanes() const { return math_->lanes; }
  void run(const char* name, const float* x, int64_t n, float* y) const {
    for (int i = 0; i < math_->count; ++i)
      if (std::strcmp(math_->functions[i].name, name) == 0) return math_->functions[i].run(x, n, y);
    CHECK(!"a function of that name");
  }
  float one(const char* name, float x) const {
    float y = 0;
    run(name, &x, 1, &y);
    return y;
  }
  template <class Exact>
  double worst_ulps(const char* name, const Exact& exact, float low, float high) const {
    constexpr int n = 1'000'000;
    std::vector<float> x(n), y(n);
    for (int i = 0; i < n; ++i) x[i] = low + (high - low) * (float(i) + 0.37f) / float(n);
    run(name, x.data(), n, y.data());
    double worst = 0;
    for (int i = 0; i < n; ++i) worst = std::fmax(worst, ulps(y[i], exact(double(x[i]))));
    return worst;
  }
  const MathFunction* begin() const { return math_->functions; }
  const MathFunction* end() const { return math_->functions + math_->count; }

 private:
  const IsaMath* math_ = nullptr;
};

void test_simd(const char* isa) {
  const Simd m(isa);
  const auto exact_exp = [](double x) { return std::exp(x); };
  const auto exact_log = [](double x) { return std::log(x); };
  const auto exact_tanh = [](double x) { return std::tanh(x); };
  const auto exact_sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double e = m.worst_ulps("exp", exact_exp, -87, 88);
  const double l = std::fmax(m.worst_ulps("log", exact_log, 1e-30f, 4),
                             m.worst_ulps("log", exact_log, 4, 1e30f));
  const double t =
      std::fmax(m.worst_ulps("tanh", exact_tanh, -1, 1), m.worst_ulps("tanh", exact_tanh, -12, 12));
  const double s = m.worst_ulps("sigmoid", exact_sigmoid, -80, 20);
  std::printf("%s, %d lanes: worst ulps exp %.2f, log %.2f, tanh %.2f, sigmoid %.2f\n", isa,
              m.lanes(), e, l, t, s);
  CHECK(e < 1.5);
  CHECK(l < 2.5);
  CHECK(t < 2.5);
  CHECK(s < 3.0);

  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  CHECK((m.one("exp", 100) == inf && m.one("exp", inf) == inf && m.one("exp", -200) == 0 &&
         m.one("exp", -inf) == 0));
  CHECK(m.one("exp", -100) > 0);  // subnormal
  CHECK((m.one("log", 0) == -inf && m.one("log", inf) == inf && std::isnan(m.one("log", -1))));
  for (float x : {1e-40f, 2.4e38f, 2.5e38f, std::numeric_limits<float>::max()})
    CHECK_CLOSE(m.one("log", x), std::log(double(x)), 1e-5);
  CHECK((m.one("tanh", 50) == 1 && m.one("tanh", -inf) == -1));
  CHECK((m.one("sigmoid", inf) == 1 && m.one("sigmoid", -inf) < 1e-37f));
  for (const MathFunction& f : m) CHECK(std::isnan(m.one(f.name, nan)));
  for (const Exact& f : kExact) {
    const double tolerance = std::strstr(f.name, "fast") ? 2e-6 : 2e-7;  // sinh magnifies rounding
    for (float x = -12; x <= 12; x += 0.03125f)
      if (const double y = f.run(x); std::isfinite(y)) CHECK_CLOSE(m.one(f.name, x), y, tolerance);
  }
  const float ones[2] = {1, 1};
  float part[2] = {};
  m.run("exp", ones, 1, part);  // only the requested values are written
  CHECK((part[0] > 2 && part[1] == 0));
}

TEST_CASE("bfloat16") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {  // every value survives a round trip to float
    tsm::bfloat16 b;
    b.bits = uint16_t(bits);
    const float x = float(b);
    const tsm::bfloat16 again(x);
    CHECK((std::isnan(x) ? std::isnan(float(again)) : again.bits == b.bits));
  }
  CHECK(float(tsm::bfloat16(1.00390625f)) == 1.0f);       // halfway: to even
  CHECK(float(tsm::bfloat16(1.01171875f)) == 1.015625f);  // halfway: to even, upwards
  CHECK(std::isinf(float(tsm::bfloat16(3.4e38f))));       // beyond the largest: infinity
  CHECK(std::isnan(float(tsm::bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace

TEST_CASE("values") {
  test_values<double>(1e-15);
  test_values<float>(4e-7);
}

TEST_CASE("extremes") {
  test_extremes<double>();
  test_extremes<float>();
}

TEST_CASE("vectors at every level") {
  for (const tsm::Isa* isa : tsm::host_isas()) test_simd(isa->name);
}
