#include "core/buffer_cache.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/first_use.h"

namespace tsm {
namespace {

// Threads only try to take the lock; one that fails allocates from the system. fork() waits for
// the lock, so that in the child the lock is free and the list consistent.
class Shelf {
 public:
  Shelf() { idle_.reserve(64); }  // so that leave() never allocates

  Aligned<char> take(int64_t bytes) {
    Aligned<char> memory = fitting(bytes);
    if (memory.size() < bytes) memory = Aligned<char>(bytes, Uninitialized());
    used_.fetch_add(memory.size());
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock) {
      most_ = std::max(most_, used_.load());
      drop();
    }
    return memory;
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  void leave(Aligned<char> memory) {
    used_.fetch_sub(memory.size());
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock || idle_.size() == idle_.capacity()) return;
    idle_bytes_ += memory.size();
    idle_.push_back(std::move(memory));
    drop();
  }

 private:
  // Takes the smallest buffer that fits without much waste, or none.
  Aligned<char> fitting(int64_t bytes) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock) return {};
    auto best = idle_.end();
    for (auto it = idle_.begin(); it != idle_.end(); ++it)
      if (it->size() >= bytes && it->size() <= bytes + bytes / 4 &&
          (best == idle_.end() || it->size() < best->size()))
        best = it;
    if (best == idle_.end()) return {};
    Aligned<char> memory = std::move(*best);
    idle_.erase(best);
    idle_bytes_ -= memory.size();
    return memory;
  }

  // Frees the oldest buffers while there are too many.
  void drop() {
    auto it = idle_.begin();
    for (; it != idle_.end() && idle_bytes_ + used_.load() > most_; ++it) idle_bytes_ -= it->size();
    idle_.erase(idle_.begin(), it);
  }

  std::mutex mutex_;
  std::vector<Aligned<char>> idle_;  // oldest first
  int64_t idle_bytes_ = 0, most_ = 0;
  std::atomic<int64_t> used_{0};
};

// Never destroyed: buffers may be freed after static destructors have run.
FirstUse<Shelf> shelves;

// If registering the handlers fails, the lock may stay locked in a child, which then caches
// nothing.
void hold_in_forks() {
  static std::atomic<bool> done{false};
  if (done.exchange(true)) return;
  const auto free = [] { shelves.peek()->unlock(); };
  if (pthread_atfork([] { shelves.peek()->lock(); }, free, free) != 0) done.store(false);
}

Shelf& shelf() {
  if (Shelf* const found = shelves.peek()) return *found;
  Shelf& made = shelves.get([] { return std::make_unique<Shelf>(); });
  hold_in_forks();
  return made;
}

}  // namespace

CachedBuffer::CachedBuffer(int64_t bytes) : bytes_(bytes) {
  require(bytes >= 0, "memory of " + std::to_string(bytes) + " bytes; accepted: 0 or more");
  memory_ = shelf().take(bytes);
}
CachedBuffer::~CachedBuffer() { shelf().leave(std::move(memory_)); }

}  // namespace tsm
