// Working memory that goes round: what one owner leaves, the next one gets. The system clears fresh
// memory page by page, which takes longer than much of the work that is done in it.
#pragma once
#include <cstdint>

#include "core/aligned.h"

namespace tsm {

// As it comes: not zeroed. What is kept idle and what is in use is never more, together, than was
// once in use at the same time. Any thread may take and leave; nobody waits.
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
  Aligned<char> memory_;  // at least so many
};

}  // namespace tsm
