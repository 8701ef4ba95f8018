// The thread pool: every part runs once, callers do not wait for each other, and it survives forks.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "core/arithmetic.h"
#include "core/thread_pool.h"
#include "support/check.h"

namespace {

using tsm::Arithmetic;
using tsm::ThreadPool;

// Every part runs once, and its writes are visible after run, for any number of parts and threads.
TEST_CASE("every part once") {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (int64_t parts = 0; parts < 40; ++parts) {
      std::vector<int> counts(size_t(parts), 0);  // not atomic, so that the sanitizer finds a race
      pool.run(parts, [&](int64_t part) { counts[size_t(part)] += 1; });
      for (const int count : counts) CHECK(count == 1);
    }
  }
}

// Many short jobs one after the other, with pauses in which the workers fall asleep.
TEST_CASE("many jobs") {
  ThreadPool pool(3);
  std::vector<int64_t> sums(3, 0);
  for (int64_t job = 0; job < 20000; ++job) {
    pool.run(3, [&](int64_t part) { sums[size_t(part)] += job; });
    if (job % 500 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  for (const int64_t sum : sums) CHECK(sum == 20000 * int64_t(19999) / 2);
}

// Every thread gets a part if the parts take long. Each part waits until all parts run at the same
// time, and gives up if they do not.
void check_all_help(ThreadPool& pool, int threads) {
  std::atomic<int> inside{0};
  std::atomic<bool> all{false};
  pool.run(threads, [&](int64_t) {
    inside.fetch_add(1);
    for (int i = 0; i < 5000 && !all.load(); ++i) {
      if (inside.load() == threads) all.store(true);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  CHECK(all.load());
}

TEST_CASE("workers help") {
  ThreadPool pool(2);
  check_all_help(pool, 2);
}

// All parts run, then one of the exceptions is thrown; the pool stays usable.
void check_exceptions(ThreadPool& pool) {
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> ran{0};
    bool thrown = false;
    try {
      pool.run(6, [&](int64_t part) {
        ran.fetch_add(1);
        if (part % 2 != 0) throw std::bad_alloc();
      });
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    CHECK((thrown && ran.load() == 6));
  }
  std::atomic<int> sum{0};
  pool.run(4, [&](int64_t part) { sum.fetch_add(int(part)); });
  CHECK(sum.load() == 6);
}

// A second caller, or a part that itself calls run, executes all of its parts on its own thread.
TEST_CASE("callers do not wait") {
  ThreadPool pool(2);
  std::atomic<bool> second_done{false};
  std::atomic<int> nested{0};
  pool.run(2, [&](int64_t part) {
    pool.run(3, [&](int64_t) { nested.fetch_add(1); });
    if (part != 0) return;
    std::thread second([&] {
      std::set<std::thread::id> who;
      pool.run(4, [&](int64_t) { who.insert(std::this_thread::get_id()); });
      CHECK((who.size() == 1 && who.count(std::this_thread::get_id()) == 1));
      second_done.store(true);
    });
    second.join();  // this part is still running, so the pool is taken
  });
  CHECK(second_done.load());
  CHECK(nested.load() == 6);
}

TEST_CASE("many callers") {
  ThreadPool pool(2);
  std::vector<int64_t> sums(4, 0);
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < sums.size(); ++caller)
    callers.emplace_back([&pool, &sum = sums[caller]] {
      for (int job = 0; job < 2000; ++job) {
        int64_t values[5];
        pool.run(5, [&](int64_t part) { values[part] = part + 1; });
        sum += std::accumulate(values, values + 5, int64_t(0));
      }
    });
  for (std::thread& caller : callers) caller.join();
  for (const int64_t sum : sums) CHECK(sum == 2000 * 15);
}

// A thread team like that of another library, in which some threads arrive late.
void some_team(void (*f)(void*), void* data, unsigned threads, unsigned) {
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i)
    others.emplace_back([=] {
      std::this_thread::sleep_for(std::chrono::microseconds(50 * (i - 1)));
      f(data);
    });
  f(data);
  for (std::thread& other : others) other.join();
}

TEST_CASE("team") {
  ThreadPool pool(3, some_team);
  CHECK(pool.threads() == 3);
  for (int64_t parts = 0; parts < 20; ++parts) {
    std::vector<int> counts(size_t(parts), 0);
    pool.run(parts, [&](int64_t part) { counts[size_t(part)] += 1; });
    for (const int count : counts) CHECK(count == 1);
  }
  check_all_help(pool, 3);
}

TEST_CASE("exceptions") {
  ThreadPool workers(3), team(3, some_team);
  check_exceptions(workers);
  check_exceptions(team);
}

TEST_CASE("training pool") {
  CHECK(&tsm::training_pool(2) == &tsm::training_pool(2));
  CHECK(tsm::training_pool(2).threads() == 2);
  CHECK(tsm::training_pool(0).threads() == 1);
}

std::atomic<int> asked{0};
void counting_team(void (*f)(void*), void* data, unsigned threads, unsigned flags) {
  asked.fetch_add(1);
  some_team(f, data, threads, flags);
}

#if defined(__x86_64__)
constexpr tsm::ArithmeticMode kUpward = 0x5f80, kDownward = 0x3f80;
#elif defined(__aarch64__)
constexpr tsm::ArithmeticMode kUpward = 1 << 22, kDownward = 1 << 23;
#else
constexpr tsm::ArithmeticMode kUpward = 0, kDownward = 0;
#endif

// All threads compute in the caller's floating-point mode, also if it has changed since they began.
void check_modes(ThreadPool& pool) {
  for (const tsm::ArithmeticMode mode : {tsm::kEngineArithmetic, kUpward, kDownward}) {
    const Arithmetic callers(mode);
    std::atomic<int> inside{0};
    tsm::ArithmeticMode found[3] = {};
    pool.run(3, [&](int64_t part) {  // each on its own thread, as in check_all_help
      inside.fetch_add(1);
      for (int i = 0; i < 5000 && inside.load() < 3; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      found[part] = Arithmetic::current();
    });
    for (const tsm::ArithmeticMode other : found) CHECK(other == mode);
  }
}

tsm::ArithmeticMode after_job = 0;

TEST_CASE("floating-point mode") {
  ThreadPool workers(3), team(3, some_team);
  check_modes(workers);
  check_modes(team);
  // A thread of a team gets its own mode back.
  ThreadPool other(2, [](void (*f)(void*), void* data, unsigned, unsigned) {
    std::thread([=] {
      const Arithmetic own(kDownward);
      f(data);
      after_job = Arithmetic::current();
    }).join();
  });
  tsm::ArithmeticMode found = kUpward;
  other.run(2, [&](int64_t) { found = Arithmetic::current(); });
  CHECK((found == Arithmetic::current() && after_job == kDownward));
}

int sum_of_parts(ThreadPool& pool) {
  std::atomic<int> sum{0};
  pool.run(4, [&](int64_t part) { sum.fetch_add(int(part)); });
  return sum.load();
}

// Whether `right` holds in a child.
template <class Right>
bool in_a_child(const Right& right) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a job that never ends is a failure
    _exit(right() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Pools created after train_on run on the team, but not in a forked child, where the team is gone.
// This also holds for a child forked before the first pool, which is why this test comes first.
TEST_CASE("training on a team") {
  tsm::train_on(counting_team);
#ifndef __SANITIZE_THREAD__  // which knows no threads started in a child
  CHECK(in_a_child([] { return sum_of_parts(tsm::training_pool(3)) == 6 && asked.load() == 0; }));
#endif
  ThreadPool& pool = tsm::training_pool(3);
  CHECK((sum_of_parts(pool) == 6 && asked.load() == 1));
#ifndef __SANITIZE_THREAD__
  CHECK(in_a_child([&] {
    return sum_of_parts(pool) == 6 && sum_of_parts(tsm::training_pool(3)) == 6 &&
           &tsm::training_pool(3) != &pool && asked.load() == 1;
  }));
#endif
  tsm::train_on(nullptr);
}

#ifndef __SANITIZE_THREAD__  // which knows no threads started in a child
// A forked child has no workers, but its jobs still finish.
TEST_CASE("fork") {
  ThreadPool pool(3);
  ThreadPool* training = &tsm::training_pool(2);
  CHECK(in_a_child([&] {
    int sum = 0;
    pool.run(4, [&](int64_t part) { sum += int(part); });  // it runs alone, so no atomic is needed
    ThreadPool* const mine = &tsm::training_pool(2);
    return sum == 6 && sum_of_parts(*mine) == 6 && mine != training && pool.orphaned();
  }));
  CHECK(!pool.orphaned());
}
#endif

}  // namespace
