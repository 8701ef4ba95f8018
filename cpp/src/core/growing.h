// Memory that calls reuse: it only grows.
#pragma once
#include <cstdint>

#include "core/aligned.h"

namespace tsm {

// An array that only grows; growing loses what it held.
template <class T>
class Growing {
 public:
  void reserve(int64_t count) {
    if (memory_.size() < count) memory_ = Aligned<T>(count);
  }
  T* data() const { return memory_.data(); }

 private:
  Aligned<T> memory_;
};

}  // namespace tsm
