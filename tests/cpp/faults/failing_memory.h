// Memory that fails on request. Included by one file of a test program, it replaces malloc and its
// relatives in the program and in every library that it loads; operator new calls malloc. glibc
// only; not with sanitizers, which replace malloc themselves.
#pragma once
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "failing.h"

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);
}

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
