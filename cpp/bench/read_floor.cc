#include "bench/read_floor.h"

#include <chrono>
#include <cstring>

namespace tsm::bench {
namespace {

// Sums an array in eight independent accumulators, so that only the reads limit its speed. It is a
// macro because a function would be compiled for its own instruction set, not for its caller's.
#define TSM_SUM_BODY(width)                                                     \
  typedef uint64_t Block __attribute__((vector_size(width), aligned(width)));   \
  const Block* block = static_cast<const Block*>(data);                         \
  Block a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};                                 \
  for (int64_t i = 0; i + 8 <= bytes / width; i += 8) {                         \
    a += block[i], b += block[i + 1], c += block[i + 2], d += block[i + 3];     \
    e += block[i + 4], f += block[i + 5], g += block[i + 6], h += block[i + 7]; \
  }                                                                             \
  a += b + c + d + e + f + g + h;                                               \
  uint64_t sum = 0;                                                             \
  for (int i = 0; i < width / 8; ++i) sum += a[i];                              \
  return sum;

uint64_t sum_base(const void* data, int64_t bytes) { TSM_SUM_BODY(16) }

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t sum_avx2(const void* data, int64_t bytes) {
  TSM_SUM_BODY(32)
}
__attribute__((target("avx512f"))) uint64_t sum_avx512(const void* data, int64_t bytes) {
  TSM_SUM_BODY(64)
}
#endif

using Sum = uint64_t (*)(const void*, int64_t);

Sum fastest_sum() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return sum_avx512;
  if (__builtin_cpu_supports("avx2")) return sum_avx2;
#endif
  return sum_base;
}

// Writes to the memory: pages that were never written all map to one page of zeros.
void fill(const Aligned<uint8_t>& memory) {
  if (memory.size()) std::memset(memory.data(), 1, size_t(memory.size()));
}

}  // namespace

ReadFloor::ReadFloor(int64_t input_bytes, int64_t recurrent_bytes, int64_t steps)
    : input_(input_bytes), recurrent_(recurrent_bytes), steps_(steps) {
  fill(input_);
  fill(recurrent_);
}

double ReadFloor::run(int64_t chunks) {
  const Sum sum = fastest_sum();
  const auto start = std::chrono::steady_clock::now();
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    sum_ = sum_ + sum(input_.data(), input_.size());
    for (int64_t step = 0; step < steps_; ++step) {
      sum_ = sum_ + sum(recurrent_.data(), recurrent_.size());
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tsm::bench
