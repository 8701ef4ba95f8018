// Makes allocations fail on request, and counts the allocated blocks. The allocators in
// failing_memory.h and failing_cuda.h call now().
#pragma once
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace failing {

inline std::atomic<int64_t> live{0};  // blocks allocated now
inline std::atomic<int64_t> seen{0};  // allocations since arm()
inline std::atomic<int64_t> at{0};    // the one that fails; 0: none
inline std::atomic<bool> onward{false};
inline std::atomic<bool> fired{false};

// Makes the n-th allocation from now on fail (counted from 1) and, with `and_later`, all later ones
// too.
inline void arm(int64_t n, bool and_later) {
  seen.store(0);
  fired.store(false);
  onward.store(and_later);
  at.store(n);
}
// Whether one did fail.
inline bool disarm() {
  at.store(0);
  return fired.load();
}

inline bool now() {
  const int64_t n = at.load(std::memory_order_relaxed);
  if (n == 0) return false;
  const int64_t i = seen.fetch_add(1) + 1;
  if (i != n && !(onward.load() && i > n)) return false;
  fired.store(true);
  errno = ENOMEM;
  return true;
}

inline void* counted(void* memory) {
  if (memory) live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

}  // namespace failing
