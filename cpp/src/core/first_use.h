// An object created on first use and kept forever, without a lock. A lock that another thread holds
// during a fork would stay locked in the child; so would the hidden lock of a function-local
// `static`.
#pragma once
#include <atomic>
#include <memory>

namespace tsm {

// For static storage, or for an owner that deletes the result of peek(). Two threads may construct
// a T at the same time, but both get the same one.
template <class T>
class FirstUse {
 public:
  constexpr FirstUse() = default;

  template <class Make>
  T& get(const Make& make) {
    T* found = made_.load(std::memory_order_acquire);
    if (found) return *found;
    std::unique_ptr<T> mine = make();
    if (made_.compare_exchange_strong(found, mine.get(), std::memory_order_acq_rel))
      found = mine.release();
    return *found;
  }
  // Null before the first use.
  T* peek() const { return made_.load(std::memory_order_acquire); }

 private:
  std::atomic<T*> made_{nullptr};
};

}  // namespace tsm
