// A cache of freed buffers. The operating system zeroes newly mapped pages, which for large buffers
// costs as much as writing them, so freed buffers are kept and reused.
#pragma once
#include <cstdint>

#include "core/aligned.h"

namespace tsm {

// A buffer from the cache, not zeroed. The total of idle and used buffers never exceeds the peak
// usage. Any thread may allocate and free; no thread ever waits.
class CachedBuffer {
 public:
  explicit CachedBuffer(int64_t bytes);
  ~CachedBuffer();
  CachedBuffer(const CachedBuffer&) = delete;
  CachedBuffer& operator=(const CachedBuffer&) = delete;

  char* data() const { return memory_.data(); }
  int64_t size() const { return bytes_; }

 private:
  int64_t bytes_;
  Aligned<char> memory_;  // at least `bytes_`
};

}  // namespace tsm
