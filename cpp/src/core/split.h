// Splits work among threads if there is enough of it.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/thread_pool.h"

namespace tsm {

// The minimum number of multiply-adds per thread: about 100 KB to read or 5 µs to compute, several
// times the cost of waking a thread.
constexpr int64_t kWorkOfPart = 1 << 17;
// The cost of one element of a cell's step or of a softmax, in multiply-adds.
constexpr int64_t kWorkOfElement = 32;

// Calls f(part, begin, end) for parts of [0, count), at most one per thread. `work` is the total
// cost in multiply-adds.
template <class Function>
void split_parts(ThreadPool& pool, int64_t count, int64_t work, const Function& f) {
  const int64_t parts =
      std::min({int64_t(pool.threads()), count, std::max<int64_t>(1, work / kWorkOfPart)});
  if (parts <= 1) {
    if (count > 0) f(int64_t(0), int64_t(0), count);
    return;
  }
  pool.run(parts, [&](int64_t part) { f(part, count * part / parts, count * (part + 1) / parts); });
}

// The same for f(begin, end).
template <class Function>
void split(ThreadPool& pool, int64_t count, int64_t work, const Function& f) {
  split_parts(pool, count, work, [&](int64_t, int64_t begin, int64_t end) { f(begin, end); });
}

}  // namespace tsm
