// Memory that fails on command. Included by one file of a test program, it takes the place of the C
// library's malloc and its kin, in the program and in every library that it loads; operator new
// calls malloc. glibc only; not with sanitizers, which do the same.
#pragma once
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);
}

namespace failing {

inline std::atomic<int64_t> live{0};  // blocks that are allocated now
inline std::atomic<int64_t> seen{0};  // allocations since arm()
inline std::atomic<int64_t> at{0};    // the one that fails; 0: none
inline std::atomic<bool> onward{false};
inline std::atomic<bool> fired{false};

// From now on the n-th allocation fails, counted from 1; with `and_later` all after it, too.
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

#pragma GCC visibility push(default)  // libraries call these
extern "C" {

void* malloc(size_t bytes) {
  return failing::now() ? nullptr : failing::counted(__libc_malloc(bytes));
}
void* calloc(size_t count, size_t bytes) {
  return failing::now() ? nullptr : failing::counted(__libc_calloc(count, bytes));
}
void* realloc(void* memory, size_t bytes) {
  if (failing::now()) return nullptr;
  if (memory) return __libc_realloc(memory, bytes);
  return failing::counted(__libc_malloc(bytes));
}
void* memalign(size_t alignment, size_t bytes) {
  return failing::now() ? nullptr : failing::counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  void* const made = memalign(alignment, bytes);
  if (!made) return ENOMEM;
  *memory = made;
  return 0;
}
void free(void* memory) {
  if (memory) failing::live.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(memory);
}
void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (failing::now()) return MAP_FAILED;
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

}  // extern "C"
#pragma GCC visibility pop
