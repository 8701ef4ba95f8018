// Times the matrix products of every instruction set against plain reads of the same bytes.
//
//   matrix_bench [LEVEL] [KIND]     LEVEL: scalar, neon, avx2, ...; KIND: float32, bfloat16, int8
//
// The matrix is [3H, 2H], as in one step of a plstm layer with I = H. Runs on one thread and
// reports the best of many runs. The product and the plain reads are timed alternately.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>

#include "bench/read_floor.h"
#include "core/aligned.h"
#include "kernels/cpu/isa.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void time_product(const tsm::MatrixKernels& kernels, const char* isa, const char* kind, int64_t H,
                  int64_t rows) {
  const int64_t outputs = 3 * H, inputs = 2 * H;
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  tsm::Aligned<float> w(outputs * inputs), x(rows * inputs), out(rows * outputs);
  for (int64_t i = 0; i < w.size(); ++i) w[i] = normal(engine);
  for (int64_t i = 0; i < x.size(); ++i) x[i] = normal(engine);
  const int64_t bytes = kernels.packed_bytes(outputs, inputs);
  tsm::Aligned<char> packed(bytes), encoded(rows * kernels.encoded_bytes(inputs));
  const auto packing = Clock::now();
  kernels.pack({tsm::MatrixSource::kFloat32, w.data(), outputs, inputs, inputs, 1, nullptr},
               packed.data());
  const double pack = seconds_since(packing);
  tsm::bench::ReadFloor reading(bytes, 0, 1);
  const int64_t panels = (outputs + kernels.panel - 1) / kernels.panel;
  double best = 1e9, floor = 1e9, encode = 1e9, spent = 0;
  for (int run = 0; run < 5 || (spent < 0.15 && run < 2000); ++run) {
    const auto start = Clock::now();
    for (int64_t r = 0; r < rows; ++r)
      kernels.encode(&x[r * inputs], inputs, encoded.data() + r * kernels.encoded_bytes(inputs));
    encode = std::min(encode, seconds_since(start));
    for (int warm = 0; warm < 2; ++warm) {  // the second run has warm caches
      const auto begin = Clock::now();
      kernels.multiply(packed.data(), outputs, inputs, rows, encoded.data(), {out.data(), outputs},
                       0, panels, {});
      best = std::min(best, seconds_since(begin));
    }
    for (int warm = 0; warm < 2; ++warm) floor = std::min(floor, reading.run(1));
    spent += seconds_since(start);
  }
  const double flops = 2.0 * double(rows * outputs * inputs);
  std::printf("%-13s %-9s %5lld %4lld %9.1f %9.1f %6.2f %8.1f %8.1f %8.1f %8.1f\n", isa, kind,
              (long long)H, (long long)rows, best * 1e6, floor * 1e6, best / floor,
              double(bytes) / best * 1e-9, flops / best * 1e-9, encode * 1e6, pack * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string isa_wish = argc > 1 ? argv[1] : "", kind_wish = argc > 2 ? argv[2] : "";
  const char* const kinds[] = {"float32", "bfloat16", "int8"};
  std::printf("%-13s %-9s %5s %4s %9s %9s %6s %8s %8s %8s %8s\n", "level", "kind", "H", "rows",
              "us", "floor us", "ratio", "GB/s", "GFLOP/s", "encode us", "pack ms");
  for (const tsm::Isa* isa : tsm::host_isas()) {
    if (!isa_wish.empty() && isa_wish != isa->name) continue;
    for (int kind = 0; kind < 3; ++kind) {
      if (!kind_wish.empty() && kind_wish != kinds[kind]) continue;
      for (int64_t H : {256, 512, 1024, 2048})
        for (int64_t rows : {1, 16, 64})
          time_product(isa->matrix[kind], isa->name, kinds[kind], H, rows);
    }
  }
}
