#include "core/forks.h"

#include <pthread.h>

#include <atomic>
#include <new>

namespace tsm {
namespace {

std::atomic<int> counter{0};

}  // namespace

void count_forks() {
  static std::atomic<bool> counted{false};
  if (counted.load()) return;
  // Two threads may both get here. A fork then counts twice, which does no harm.
  if (pthread_atfork(nullptr, nullptr, [] { counter.fetch_add(1); }) != 0) throw std::bad_alloc();
  counted.store(true);
}

int forks() noexcept { return counter.load(std::memory_order_relaxed); }

}  // namespace tsm
