// Memory for vectors: 64-byte aligned, of a fixed size, zeroed unless it is asked for as it comes.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace tsm {

constexpr int64_t kAlignment = 64;

constexpr int64_t padded(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Uninitialized {};

// An owned array of T, not larger than asked for but for padding at its end.
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
    void* memory = std::aligned_alloc(kAlignment, size_t(bytes));
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
