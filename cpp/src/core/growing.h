// Memory that calls reuse; it never shrinks.
#pragma once
#include <cstdint>

#include "core/aligned.h"

namespace tsm {

// An array that never shrinks; growing discards its contents.
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
