// Memory for vectors: 64-byte aligned, of a fixed size, zeroed unless requested otherwise.
// Large arrays use huge pages if the system has them: this saves TLB misses, and avoids conflict
// misses in L2 for an array that fits there.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tsm {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 1 << 21;

constexpr int64_t padded(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Uninitialized {};

// Allocates memory that std::free releases, or returns null. An array of half a huge page or more
// is put on huge pages, except for a tail of less than half a page.
inline void* allocate(int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const int64_t huge = (bytes + kHugePage / 2) / kHugePage * kHugePage;
  if (huge > 0) {
    void* memory = nullptr;
    const size_t all = size_t(bytes > huge ? bytes : huge);
    if (posix_memalign(&memory, size_t(kHugePage), all) != 0) return nullptr;
    madvise(memory, size_t(huge), MADV_HUGEPAGE);  // if refused, small pages are used
    return memory;
  }
#endif
  return std::aligned_alloc(kAlignment, size_t(bytes));
}

// An owned array of T. Its memory is padded to a whole cache line, or to whole huge pages if it
// takes at least half a page.
template <class T>
class Aligned {
 public:
  Aligned() = default;
  explicit Aligned(int64_t count) : Aligned(count, Uninitialized()) {
    if (data_)
      std::memset(static_cast<void*>(data_.get()), 0, size_t(padded(count * int64_t(sizeof(T)))));
  }
  Aligned(int64_t count, Uninitialized) : count_(count) {
    if (count < 0 || uint64_t(count) > (uint64_t(1) << 62) / sizeof(T)) throw std::bad_alloc();
    const int64_t bytes = padded(count * int64_t(sizeof(T)));
    if (bytes == 0) return;
    void* memory = allocate(bytes);
    if (!memory) throw std::bad_alloc();
    data_.reset(static_cast<T*>(memory));
  }
  T* data() const { return data_.get(); }
  int64_t size() const { return count_; }
  T& operator[](int64_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t count_ = 0;
};

}  // namespace tsm
