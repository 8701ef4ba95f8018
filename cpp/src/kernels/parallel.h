// Work that falls into independent pieces, on a few threads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace tsm {

// f(first, last) for disjoint ranges that cover [0, n), at most `threads` of them at once; the
// calling thread takes one, and those for which no thread can be had. What a piece computes must
// not depend on the split. An exception of a piece comes out here.
template <class Function>
void parallel_for(int64_t n, int threads, const Function& f) {
  const int64_t parts = std::clamp<int64_t>(threads, 1, std::max<int64_t>(n, 1));
  std::vector<std::exception_ptr> errors(parts);
  const auto part = [&](int64_t i) {
    try {
      f(n * i / parts, n * (i + 1) / parts);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  others.reserve(size_t(parts));
  int64_t started = 1;
  try {
    for (; started < parts; ++started) others.emplace_back(part, started);
  } catch (const std::system_error&) {  // the system has no more threads
  }
  part(0);
  for (int64_t i = started; i < parts; ++i) part(i);
  for (std::thread& thread : others) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace tsm
