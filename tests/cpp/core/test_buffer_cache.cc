// The buffer cache: memory is reused where it fits, and the cache never holds more than was in use
// at the peak, with any number of threads.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "core/buffer_cache.h"
#include "support/check.h"

namespace {

using tsm::CachedBuffer;

constexpr int64_t kBytes = 3 << 20;

TEST_CASE("reuse") {
  const char* first = nullptr;
  {
    const CachedBuffer memory(kBytes);
    CHECK(memory.size() == kBytes);
    CHECK(reinterpret_cast<uintptr_t>(memory.data()) % tsm::kAlignment == 0);
    std::memset(memory.data(), 1, size_t(memory.size()));
    first = memory.data();
  }
  const CachedBuffer again(kBytes);
  CHECK(again.data() == first);  // also with what it holds
  CHECK(again.data()[kBytes - 1] == 1);
  const CachedBuffer other(kBytes);  // the first is in use
  CHECK(other.data() != first);
}

TEST_CASE("fit") {
  const char* large = nullptr;
  {
    const CachedBuffer memory(40 * kBytes), beside(4 * kBytes);
    large = memory.data();
  }
  {
    const CachedBuffer small(kBytes);  // not a piece of a much larger one
    CHECK(small.size() == kBytes);
    CHECK(small.data() != large);
  }
  const CachedBuffer nearly(36 * kBytes);
  CHECK(nearly.size() == 36 * kBytes);
  CHECK(nearly.data() == large);
}

TEST_CASE("none") {
  const CachedBuffer nothing(0);
  CHECK(nothing.size() == 0);
}

TEST_CASE("threads") {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([i] {
      for (int run = 0; run < 300; ++run) {
        const CachedBuffer memory((run % 7 + 1) << 16);
        std::memset(memory.data(), i, size_t(memory.size()));
        std::this_thread::yield();
        bool mine = true;
        for (int64_t at = 0; at < memory.size(); at += 4096) mine = mine && memory.data()[at] == i;
        CHECK(mine);  // nobody else has it
      }
    });
  for (std::thread& thread : threads) thread.join();
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // whose malloc may stay locked
// A forked child can reuse memory like its parent, whatever locks other threads held at the fork.
TEST_CASE("fork") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&] {
      while (!stop.load()) const CachedBuffer memory(1 << 10);
    });
  }
  int wrong = 0;
  for (int i = 0; i < 200; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const char* first = nullptr;
      {
        const CachedBuffer memory(kBytes);
        first = memory.data();
      }
      _exit(CachedBuffer(kBytes).data() == first ? 0 : 1);
    }
    int status = -1;
    wrong += waitpid(child, &status, 0) != child || status != 0;
  }
  stop.store(true);
  for (std::thread& other : others) other.join();
  CHECK(wrong == 0);
}
#endif

}  // namespace
