// The matrix products of every instruction set of this machine: compared with float64 and exact
// integers; the same bits for any batch and split; every source type, NaN and infinity.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/aligned.h"
#include "core/arithmetic.h"
#include "core/bfloat16.h"
#include "kernels/cpu/isa.h"
#include "support/check.h"

namespace {

using tsm::Aligned;
using tsm::Isa;
using tsm::MatrixKernels;
using tsm::MatrixSource;
using tsm::Weights;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const char* const kKinds[] = {"float32", "bfloat16", "int8"};

std::string where;  // what is under test, for the messages

void expect(bool condition, const std::string& what) {
  if (!condition) FAIL_CHECK(where, ": ", what);
}

std::vector<float> random_floats(int64_t n, unsigned seed, float size = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> x(size_t(n), 0.0f);
  for (float& value : x) value = normal(engine);
  return x;
}

MatrixSource source(const std::vector<float>& w, int64_t outputs, int64_t inputs) {
  return {MatrixSource::kFloat32, w.data(), outputs, inputs, inputs, 1, nullptr};
}

// A packed matrix, and rows to multiply with it.
struct Packed {
  const MatrixKernels& kernels;
  int64_t outputs, inputs;
  Aligned<char> bytes;

  Packed(const MatrixKernels& k, const MatrixSource& w)
      : kernels(k),
        outputs(w.outputs),
        inputs(w.inputs),
        bytes(k.packed_bytes(w.outputs, w.inputs)) {
    k.pack(w, bytes.data());
  }
  int64_t panels() const { return (outputs + kernels.panel - 1) / kernels.panel; }

  Aligned<char> encode(const float* x, int64_t rows) const {
    const int64_t each = kernels.encoded_bytes(inputs);
    expect(each % 64 == 0, "encoded_bytes is a multiple of 64");
    Aligned<char> encoded(each * rows);
    std::memset(encoded.data(), 0x55, size_t(each * rows));  // encode must leave nothing unset
    for (int64_t r = 0; r < rows; ++r)
      kernels.encode(x + r * inputs, inputs, encoded.data() + r * each);
    return encoded;
  }
  // Returns start [rows, outputs] + x w^T, computed in rows that are `gap` wider than the outputs.
  // With `one`, start is a single row that is passed to the kernels instead of being copied into
  // every row.
  std::vector<float> multiply(const Aligned<char>& encoded, int64_t first_row, int64_t rows,
                              const std::vector<float>& start, int64_t pieces = 1, int64_t gap = 3,
                              bool one = false) const {
    const int64_t stride = outputs + gap, each = kernels.encoded_bytes(inputs);
    std::vector<float> wide(size_t(rows * stride), 77.0f);
    for (int64_t r = 0; r < rows && !one; ++r)
      std::copy_n(&start[size_t((first_row + r) * outputs)], outputs, &wide[size_t(r * stride)]);
    for (int64_t p = 0; p < pieces; ++p)  // some of several calls prefetch the next one
      kernels.multiply(bytes.data(), outputs, inputs, rows, encoded.data() + first_row * each,
                       {wide.data(), stride, one ? start.data() : nullptr}, panels() * p / pieces,
                       panels() * (p + 1) / pieces, {bytes.data(), p % 2 * bytes.size()});
    std::vector<float> out(size_t(rows * outputs));
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(&wide[size_t(r * stride)], outputs, &out[size_t(r * outputs)]);
      for (int64_t j = outputs; j < stride; ++j)
        expect(wide[size_t(r * stride + j)] == 77.0f, "nothing is written past a row's outputs");
    }
    return out;
  }
};

bool same_bits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, size_t(n) * sizeof(float)) == 0;
}

float absmax(const float* x, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::fmax(most, std::fabs(x[i]));
  return most;
}

struct Quantized {
  float scale;
  std::vector<int64_t> q;
  Quantized(const float* x, int64_t n) : scale(absmax(x, n) / 127) {
    for (int64_t i = 0; i < n; ++i)
      q.push_back(scale > 0 ? int64_t(std::nearbyint(x[i] / scale)) : 0);
  }
};

// float kinds: within (n + 2) roundings of the sum of magnitudes. int8: exact, except that the last
// multiply-add may be fused.
void test_reference(const MatrixKernels& kernels, Weights kind, int64_t outputs, int64_t inputs) {
  const int64_t rows = 3;
  const auto w = random_floats(outputs * inputs, 1), x = random_floats(rows * inputs, 2);
  const auto start = random_floats(rows * outputs, 3);
  const Packed packed(kernels, source(w, outputs, inputs));
  const auto out = packed.multiply(packed.encode(x.data(), rows), 0, rows, start);
  for (int64_t r = 0; r < rows; ++r) {
    const Quantized qx(&x[size_t(r * inputs)], inputs);
    for (int64_t i = 0; i < outputs; ++i) {
      const float found = out[size_t(r * outputs + i)], first = start[size_t(r * outputs + i)];
      if (kind == Weights::kInt8) {
        const Quantized qw(&w[size_t(i * inputs)], inputs);
        int64_t sum = 0;
        for (int64_t k = 0; k < inputs; ++k) sum += qx.q[size_t(k)] * qw.q[size_t(k)];
        const float factor = qx.scale * qw.scale;
        const float product = factor * float(sum);
        expect(found == std::fma(factor, float(sum), first) || found == product + first,
               "int8 sums are exact");
        continue;
      }
      double sum = first, size = std::fabs(first);
      for (int64_t k = 0; k < inputs; ++k) {
        float a = x[size_t(r * inputs + k)], b = w[size_t(i * inputs + k)];
        if (kind == Weights::kBFloat16) a = float(tsm::bfloat16(a)), b = float(tsm::bfloat16(b));
        sum += double(a) * b;
        size += std::fabs(double(a) * b);
      }
      expect(std::fabs(found - sum) <= double(inputs + 2) * size * 0x1p-24,
             "the product is within its bound");
    }
  }
}

void test_same_bits(const MatrixKernels& kernels, int64_t outputs, int64_t inputs, bool all) {
  const int64_t rows = 40;
  const auto w = random_floats(outputs * inputs, 4), x = random_floats(rows * inputs, 5);
  const auto start = random_floats(rows * outputs, 6);
  const Packed packed(kernels, source(w, outputs, inputs));
  const auto encoded = packed.encode(x.data(), rows);
  const auto whole = packed.multiply(encoded, 0, rows, start);
  for (int64_t count = 1; count < rows; count += all ? 1 : 13) {
    for (int64_t first : {int64_t(0), (rows - count) / 2, rows - count}) {
      const int64_t pieces = 1 + (count + first) % 5;
      const auto part = packed.multiply(encoded, first, count, start, pieces, count % 2);
      expect(same_bits(part.data(), &whole[size_t(first * outputs)], count * outputs),
             "rows give the same bits in any batch, " + std::to_string(outputs) + " x " +
                 std::to_string(inputs) + ", " + std::to_string(count) + " rows from " +
                 std::to_string(first));
      if (!all) break;
    }
  }
  std::vector<float> row(start.begin(), start.begin() + outputs), repeated;
  for (int64_t r = 0; r < rows; ++r) repeated.insert(repeated.end(), row.begin(), row.end());
  const auto expected = packed.multiply(encoded, 0, rows, repeated);
  for (int64_t count : {1, 2, 5, 7, 18, 40})
    expect(
        same_bits(packed.multiply(encoded, rows - count, count, row, 1 + count % 3, 1, true).data(),
                  &expected[size_t((rows - count) * outputs)], count * outputs),
        "one start for all rows gives the bits of as many, " + std::to_string(outputs) + " x " +
            std::to_string(inputs) + ", " + std::to_string(count) + " rows");
  for (int64_t count : {2, 20}) {  // every output is computed by one panel
    std::vector<float> out = start;
    int64_t written = 0;
    for (int64_t panel = 0; panel < packed.panels(); ++panel) {
      const std::vector<float> before = out;
      kernels.multiply(packed.bytes.data(), outputs, inputs, count, encoded.data(),
                       {out.data(), outputs}, panel, panel + 1, {});
      for (size_t i = 0; i < out.size(); ++i) written += out[i] != before[i];
    }
    int64_t different = 0;
    for (int64_t i = 0; i < count * outputs; ++i) different += whole[size_t(i)] != start[size_t(i)];
    expect(same_bits(out.data(), whole.data(), count * outputs) && written == different,
           "every output is in one panel, " + std::to_string(outputs) + " x " +
               std::to_string(inputs));
  }
}

// An empty range of panels writes nothing; with no inputs, the result equals `start`.
void test_empty(const MatrixKernels& kernels) {
  const int64_t outputs = 70, rows = 9;
  const auto start = random_floats(outputs, 12);
  for (int64_t inputs : {0, 5}) {
    const std::vector<float> numbers(size_t(outputs * 5), 1.0f);
    const Packed packed(kernels, source(numbers, outputs, inputs));
    const auto encoded = inputs > 0 ? packed.encode(numbers.data(), rows) : Aligned<char>(64);
    for (int64_t count : {int64_t(1), rows}) {
      std::vector<float> out(size_t(rows * outputs), 77.0f);
      kernels.multiply(packed.bytes.data(), outputs, inputs, count, encoded.data(),
                       {out.data(), outputs, start.data()}, packed.panels(), packed.panels(), {});
      expect(std::count(out.begin(), out.end(), 77.0f) == rows * outputs, "no panels: no writes");
    }
    if (inputs > 0) continue;
    for (int64_t count : {int64_t(1), rows}) {
      const auto out = packed.multiply(encoded, 0, count, start, 1, 3, true);
      for (int64_t r = 0; r < count; ++r)
        expect(same_bits(&out[size_t(r * outputs)], start.data(), outputs), "no inputs: the start");
    }
  }
}

// Input rows may be unaligned, and nothing past the last row may be read, as in a caller's buffer.
void test_unaligned(const MatrixKernels& kernels) {
  const int64_t outputs = 70, inputs = 48, rows = 20, shift = 4;
  const auto w = random_floats(outputs * inputs, 13), x = random_floats(rows * inputs, 14);
  const auto start = random_floats(outputs, 15);
  const Packed packed(kernels, source(w, outputs, inputs));
  const auto encoded = packed.encode(x.data(), rows);
  std::vector<char> shifted(size_t(encoded.size() + shift));
  std::memcpy(shifted.data() + shift, encoded.data(), size_t(encoded.size()));
  for (int64_t count : {int64_t(1), int64_t(2), int64_t(7), rows}) {
    std::vector<float> out(size_t(count * outputs), 77.0f);
    kernels.multiply(packed.bytes.data(), outputs, inputs, count, shifted.data() + shift,
                     {out.data(), outputs, start.data()}, 0, packed.panels(), {});
    expect(same_bits(out.data(), packed.multiply(encoded, 0, count, start, 1, 3, true).data(),
                     count * outputs),
           "rows give the same bits at any address");
  }
}

// Magnitudes of 2^least to 2^most, both signs, some of them 0.
std::vector<float> spread_floats(int64_t n, unsigned seed, int least, int most) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> exponent{float(least), float(most)};
  std::vector<float> x(size_t(n), 0.0f);
  for (float& value : x)
    if (engine() % 16 != 0) value = std::exp2(exponent(engine)) * (engine() % 2 ? 1.0f : -1.0f);
  return x;
}

// Each row gives the same bits alone as among 16 rows, also when products or sums are subnormal or
// large: few rows may use other instructions than many rows, and both must round and flush alike.
void test_lone_rows(const MatrixKernels& kernels, int64_t inputs) {
  const int64_t rows = 16, outputs = 70;
  const struct {
    const char* name;
    int least, most, start_least, start_most;
  } sets[] = {{"ordinary", -8, 2, -8, 2},
              {"around the smallest normal number", -68, -58, -140, -120},
              {"subnormal factors", -140, 0, -149, -100},
              {"large", 40, 60, 90, 120},
              {"of every size", -100, 60, -140, 120}};
  for (const auto& set : sets) {
    const auto w = spread_floats(outputs * inputs, unsigned(inputs), set.least, set.most);
    const auto x = spread_floats(rows * inputs, unsigned(inputs + 1), set.least, set.most);
    const auto start =
        spread_floats(rows * outputs, unsigned(inputs + 2), set.start_least, set.start_most);
    const Packed packed(kernels, source(w, outputs, inputs));
    const auto encoded = packed.encode(x.data(), rows);
    const auto together = packed.multiply(encoded, 0, rows, start);
    for (int64_t count = 1; count <= 4; ++count)
      for (int64_t row = 0; row + count <= rows; row += count)
        expect(same_bits(packed.multiply(encoded, row, count, start).data(),
                         &together[size_t(row * outputs)], count * outputs),
               std::to_string(count) + " rows alone as among 16, numbers " + set.name + ", " +
                   std::to_string(inputs) + " inputs");
  }
}

// The same numbers, in any type and with any strides, give the same packed bytes.
void test_sources(const MatrixKernels& kernels, Weights kind) {
  const int64_t outputs = 70, inputs = 37;
  const size_t n = size_t(outputs * inputs);
  std::mt19937 engine(7);
  std::vector<int8_t> q(n);
  std::vector<float> f(n), scales(size_t(outputs), 0.0f);
  std::vector<double> d(n), transposed(n), spaced(2 * n);
  std::vector<float> transposed_f(n);
  std::vector<tsm::bfloat16> b(n), transposed_b(n);
  for (int64_t i = 0; i < outputs; ++i) {
    scales[size_t(i)] = std::ldexp(1.0f, int(i % 5) - 8);
    for (int64_t k = 0; k < inputs; ++k) {
      const size_t at = size_t(i * inputs + k);
      q[at] = k == 0 ? int8_t(127) : int8_t(int(engine() % 255) - 127);  // bfloat16 holds them
      f[at] = scales[size_t(i)] * float(q[at]);
      d[at] = transposed[size_t(k * outputs + i)] = spaced[2 * at] = f[at];
      transposed_f[size_t(k * outputs + i)] = f[at];
      b[at] = transposed_b[size_t(k * outputs + i)] = tsm::bfloat16(f[at]);
    }
  }
  const Packed expected(kernels, source(f, outputs, inputs));
  const auto compare = [&](const char* name, const MatrixSource& w) {
    const Packed found(kernels, w);
    expect(std::memcmp(found.bytes.data(), expected.bytes.data(), size_t(found.bytes.size())) == 0,
           std::string("packed bytes do not depend on the source: ") + name);
  };
  compare("float64", {MatrixSource::kFloat64, d.data(), outputs, inputs, inputs, 1, nullptr});
  compare("transposed",
          {MatrixSource::kFloat64, transposed.data(), outputs, inputs, 1, outputs, nullptr});
  compare("float32, transposed",
          {MatrixSource::kFloat32, transposed_f.data(), outputs, inputs, 1, outputs, nullptr});
  compare("bfloat16, transposed",
          {MatrixSource::kBFloat16, transposed_b.data(), outputs, inputs, 1, outputs, nullptr});
  std::vector<const void*> columns;  // anywhere in memory
  for (int64_t k = 0; k < inputs; ++k) columns.push_back(&transposed_f[size_t(k * outputs)]);
  compare("float32, by column",
          {MatrixSource::kFloat32, nullptr, outputs, inputs, 1, 0, nullptr, columns.data()});
  for (int64_t k = 0; k < inputs; ++k) columns[size_t(k)] = &transposed_b[size_t(k * outputs)];
  compare("bfloat16, by column",
          {MatrixSource::kBFloat16, nullptr, outputs, inputs, 1, 0, nullptr, columns.data()});
  compare("spaced",
          {MatrixSource::kFloat64, spaced.data(), outputs, inputs, 2 * inputs, 2, nullptr});
  compare("bfloat16", {MatrixSource::kBFloat16, b.data(), outputs, inputs, inputs, 1, nullptr});
  compare("int8", {MatrixSource::kInt8, q.data(), outputs, inputs, inputs, 1, scales.data()});

  if (kind != Weights::kInt8) return;  // tsm never writes -128, but a file may contain it
  std::fill(q.begin(), q.end(), int8_t(-128));
  const Packed low(kernels,
                   {MatrixSource::kInt8, q.data(), outputs, inputs, inputs, 1, scales.data()});
  const std::vector<float> x(size_t(inputs), -1.0f), start(size_t(outputs), 0.0f);
  const auto out = low.multiply(low.encode(x.data(), 1), 0, 1, start);
  for (int64_t i = 0; i < outputs; ++i)
    expect(out[size_t(i)] == (1.0f / 127) * scales[size_t(i)] * float(-127 * -128 * inputs),
           "-128 is kept");
}

void test_not_finite(const MatrixKernels& kernels, Weights kind) {
  const int64_t outputs = 150, inputs = 45, rows = 9;
  auto w = random_floats(outputs * inputs, 8);
  auto x = random_floats(rows * inputs, 9);
  const std::vector<float> start(size_t(rows * outputs), 0.0f);
  x[size_t(3 * inputs + 44)] = kNaN;
  x[size_t(5 * inputs + 2)] = kInfinity;
  w[size_t(140 * inputs + 7)] = kNaN;
  const Packed packed(kernels, source(w, outputs, inputs));
  const auto out = packed.multiply(packed.encode(x.data(), rows), 0, rows, start);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < outputs; ++i) {
      const float found = out[size_t(r * outputs + i)];
      if (r == 3 || i == 140)
        expect(std::isnan(found), "NaN stays");
      else if (r == 5)
        expect(kind == Weights::kInt8 ? std::isnan(found) : std::isinf(found), "infinity stays");
      else
        expect(std::isfinite(found), "what is not finite stays in its row and output");
    }
}

void test_int8_edges(const MatrixKernels& kernels) {
  expect(kernels.packed_bytes(8, (1 << 17) + 1) < 0, "sums that may overflow are refused");
  const int64_t inputs = 1 << 17;  // the longest sum of the largest products
  std::vector<float> w(size_t(inputs), 3.0f), x(size_t(inputs), -2.0f), start = { 1.0f };
  const Packed packed(kernels, source(w, 1, inputs));
  const auto out = packed.multiply(packed.encode(x.data(), 1), 0, 1, start);
  CHECK_CLOSE(out[0], 1 - 6.0 * double(inputs), 1e-6);
  std::fill(x.begin(), x.end(), 0.0f);  // an all-zero row
  const auto zero = packed.multiply(packed.encode(x.data(), 1), 0, 1, start);
  expect(zero[0] == 1.0f, "an all-zero row adds nothing");
  std::fill(x.begin(), x.end(), 1e-44f);  // subnormal: the scale is too small for exact steps
  const auto tiny = packed.multiply(packed.encode(x.data(), 1), 0, 1, start);
  expect(std::fabs(tiny[0] - 1.0f) < 1e-6f, "subnormal activations stay small");
}

void test_float64(const MatrixKernels& kernels) {
  const int64_t outputs = 37, inputs = 21, rows = 11;
  const auto w = random_floats(outputs * inputs, 10), x = random_floats(rows * inputs, 11);
  const std::vector<double> wide(x.begin(), x.end());
  Aligned<char> packed(kernels.packed_bytes(outputs, inputs));
  kernels.pack(source(w, outputs, inputs), packed.data());
  const int64_t each = kernels.encoded_bytes(inputs);
  Aligned<char> encoded(each * rows);
  for (int64_t r = 0; r < rows; ++r)
    kernels.encode(&wide[size_t(r * inputs)], inputs, encoded.data() + r * each);
  std::vector<double> out(size_t(rows * outputs), 0.5);
  kernels.multiply(packed.data(), outputs, inputs, rows, encoded.data(), {out.data(), outputs}, 0,
                   (outputs + kernels.panel - 1) / kernels.panel, {});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < outputs; ++i) {
      long double sum = 0.5L;
      for (int64_t k = 0; k < inputs; ++k)
        sum += (long double)(w[size_t(i * inputs + k)]) * x[size_t(r * inputs + k)];
      CHECK_CLOSE(out[size_t(r * outputs + i)], double(sum), 1e-13);
    }
}

}  // namespace

TEST_CASE("products of every level and kind of weights") {
  const int64_t sizes[] = {1, 7, 154, 300, 1150};
  for (const Isa* isa : tsm::host_isas()) {
    for (int kind = 0; kind < 3; ++kind) {
      where = std::string(isa->name) + " " + kKinds[kind];
      const MatrixKernels& kernels = isa->matrix[kind];
      for (int64_t outputs : sizes)
        for (int64_t inputs : sizes) test_reference(kernels, Weights(kind), outputs, inputs);
      for (int64_t size : sizes) {
        test_same_bits(kernels, size, 45, size <= 300);
        test_same_bits(kernels, 45, size, size <= 300);
      }
      for (int64_t outputs : {50, 64, 70, 96, 112, 128}) test_same_bits(kernels, outputs, 9, true);
      test_same_bits(kernels, 112, 700, false);   // several parts of panels of 3, 4 and 0 registers
      test_same_bits(kernels, 1024, 270, false);  // not in L2
      for (int64_t inputs = 1; inputs <= 100; ++inputs) {
        test_lone_rows(kernels, inputs);
        const tsm::Arithmetic streaming;  // subnormal numbers are 0
        test_lone_rows(kernels, inputs);
      }
      test_sources(kernels, Weights(kind));
      test_not_finite(kernels, Weights(kind));
      test_empty(kernels);
      test_unaligned(kernels);
    }
    where = isa->name;
    test_int8_edges(isa->matrix[int(Weights::kInt8)]);
    {
      const tsm::Arithmetic streaming;
      test_int8_edges(isa->matrix[int(Weights::kInt8)]);
    }
    const bool base = isa == *tsm::host_isas().begin();
    const MatrixKernels& float64 = isa->matrix[int(Weights::kFloat64)];
    expect((float64.multiply != nullptr) == base, "only the base has float64");
    if (base) test_float64(float64);
  }
}
