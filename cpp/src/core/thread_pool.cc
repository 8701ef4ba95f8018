// To run a job, the caller stores it and sets `left` to its number of parts. A thread that
// decrements `left` owns a part. A job is done when `unfinished` is 0, so the caller waits only for
// parts in progress, not for a worker that is slow to wake up or was descheduled.
#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include "core/arithmetic.h"
#include "core/forks.h"
#include "core/no_signals.h"

namespace tsm {
namespace {

using Clock = std::chrono::steady_clock;

// For this long, spinning is cheaper than sleeping; beyond it, spinning would take the core from
// others.
constexpr std::chrono::microseconds kSpin(30);
// The next chunk of a training step comes after some matrix products outside this library. A worker
// that has gone to sleep by then starts late; on a virtual machine the delay can be a large part of
// a small chunk's time.
constexpr std::chrono::microseconds kTrainingPatience(4000);

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // about as long as x86's pause; `yield` is a no-op on ARM
#endif
}

// Polls ready() until it is true or the time is up; returns its last value. After kSpin it yields
// the core to other threads.
template <class Ready>
bool spin(const Ready& ready, std::chrono::microseconds patience) {
  const auto begin = Clock::now();
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() < begin + kSpin);
  while (Clock::now() < begin + patience) {
    if (ready()) return true;
    std::this_thread::yield();
  }
  return ready();
}

// The first exception that any of several threads throws.
class Failure {
 public:
  template <class Function>
  void watch(const Function& f) noexcept {
    try {
      f();
    } catch (...) {
      if (!failed_.exchange(true)) what_ = std::current_exception();
    }
  }
  // Returns the exception and clears it.
  std::exception_ptr take() {
    failed_.store(false);
    return std::exchange(what_, nullptr);
  }

 private:
  std::atomic<bool> failed_{false};
  std::exception_ptr what_;
};

void rethrow(const std::exception_ptr& failure) {
  if (failure) std::rethrow_exception(failure);
}

// A job of a team, whose threads take parts until none are left. No exception may leave a thread of
// the team, which belongs to another library.
struct TeamJob {
  void (*f)(const void* context, int64_t part);
  const void* context;
  int64_t parts;
  ArithmeticMode mode;
  std::atomic<int64_t> next{0};
  Failure failure{};

  static void help(void* data) {
    TeamJob& job = *static_cast<TeamJob*>(data);
    const Arithmetic arithmetic(job.mode);
    for (int64_t part; (part = job.next.fetch_add(1)) < job.parts;)
      job.failure.watch([&] { job.f(job.context, part); });
  }
};

std::atomic<Team> training_team{nullptr};

}  // namespace

struct ThreadPool::Shared {
  // The job. It is written only while no part is left or in progress, and is read by threads that
  // own a part.
  void (*f)(const void* context, int64_t part) = nullptr;
  const void* context = nullptr;
  int64_t parts = 0;
  ArithmeticMode mode = kEngineArithmetic;
  Failure failure;

  alignas(64) std::atomic<int64_t> left{0};        // parts not yet taken
  alignas(64) std::atomic<int64_t> unfinished{0};  // parts left or in progress
  alignas(64) std::atomic<bool> taken{false};      // a caller is using the workers

  std::mutex mutex;
  std::condition_variable work, done;
  std::atomic<int> sleepers{0};            // workers waiting in `work`
  std::atomic<bool> caller_sleeps{false};  // waiting in `done`
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  int born = forks();
  const std::chrono::microseconds patience{};
  const Team team = nullptr;
  const int team_threads = 0;

  explicit Shared(std::chrono::microseconds patience) : patience(patience) {}
  Shared(Team team, int threads) : team(team), team_threads(threads) {}

  bool orphaned() const { return born != forks(); }

  // Runs one part; returns false if none is left.
  bool take() {
    int64_t n = left.load(std::memory_order_acquire);
    do {
      if (n == 0) return false;
    } while (!left.compare_exchange_weak(n, n - 1, std::memory_order_acquire));
    const Arithmetic arithmetic(mode);
    failure.watch([&] { f(context, parts - n); });
    // Sequentially consistent, like caller_sleeps and sleepers: of two threads that each write one
    // variable and then read the other's, at least one sees the write.
    if (unfinished.fetch_sub(1) == 1 && caller_sleeps.load()) {
      const std::lock_guard<std::mutex> lock(mutex);
      done.notify_one();
    }
    return true;
  }

  void work_loop() {
    while (!stop.load(std::memory_order_relaxed)) {
      while (take()) {
      }
      const auto called = [this] { return left.load() > 0 || stop.load(); };
      if (spin(called, patience)) continue;
      std::unique_lock<std::mutex> lock(mutex);
      sleepers.fetch_add(1);
      work.wait(lock, called);
      sleepers.fetch_sub(1);
    }
  }

  void wake(int64_t wanted) {
    if (sleepers.load() == 0) return;
    const std::lock_guard<std::mutex> lock(mutex);
    if (wanted == 1)
      work.notify_one();
    else
      work.notify_all();
  }

  void wait() {
    const auto over = [this] { return unfinished.load() == 0; };
    if (spin(over, patience)) return;
    std::unique_lock<std::mutex> lock(mutex);
    caller_sleeps.store(true);
    done.wait(lock, over);
    caller_sleeps.store(false);
  }
};

ThreadPool::ThreadPool(int threads, std::chrono::microseconds patience)
    : shared_(new Shared(patience)) {
  shared_->workers.reserve(size_t(std::max(threads - 1, 0)));
  count_forks();
  const NoSignals for_workers;
  try {
    for (int i = 1; i < threads; ++i)
      shared_->workers.emplace_back([shared = shared_.get()] { shared->work_loop(); });
  } catch (const std::exception&) {  // the system has no more threads or memory: fewer workers
  }
}

ThreadPool::ThreadPool(int threads, Team team) : shared_(new Shared(team, threads)) {
  count_forks();
}

ThreadPool::~ThreadPool() {
  if (shared_->orphaned()) {  // no workers to join, and one of them may hold the lock
    shared_.release();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->stop.store(true);
  }
  shared_->work.notify_all();
  for (std::thread& worker : shared_->workers) worker.join();
}

int ThreadPool::threads() const {
  return shared_->team ? shared_->team_threads : int(shared_->workers.size()) + 1;
}

bool ThreadPool::orphaned() const { return shared_->orphaned(); }

void ThreadPool::run(int64_t parts, void (*f)(const void*, int64_t), const void* context) {
  Shared& s = *shared_;
  if (s.team && parts > 1 && !s.orphaned()) {
    TeamJob job{f, context, parts, Arithmetic::current()};
    s.team(TeamJob::help, &job, unsigned(s.team_threads), 0);
    return rethrow(job.failure.take());
  }
  const bool alone = parts <= 1 || s.workers.empty() || s.orphaned() ||
                     s.taken.exchange(true, std::memory_order_acquire);
  if (alone) {
    Failure failure;
    for (int64_t part = 0; part < parts; ++part) failure.watch([&] { f(context, part); });
    return rethrow(failure.take());
  }
  s.f = f;
  s.context = context;
  s.parts = parts;
  s.mode = Arithmetic::current();
  s.unfinished.store(parts);
  s.left.store(parts);
  s.wake(parts - 1);
  while (s.take()) {
  }
  s.wait();
  const std::exception_ptr failure = s.failure.take();
  s.taken.store(false, std::memory_order_release);
  rethrow(failure);
}

int usable_cores() {
  double cores = std::thread::hardware_concurrency();
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) cores = CPU_COUNT(&allowed);
  double quota = 0, period = 0;  // microseconds; the file says "max" where there is no limit
  if (std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period && quota > 0 && period > 0)
    cores = std::min(cores, quota / period);
#endif
  return std::max(1, int(cores));
}

ThreadPool& training_pool(int threads) {
  // No lock is used: one that another thread holds during a fork would stay locked in the child.
  constexpr int kMost = 1024;
  static std::atomic<ThreadPool*> pools[kMost];
  const int n = std::clamp(threads, 1, kMost);
  std::atomic<ThreadPool*>& slot = pools[n - 1];
  ThreadPool* pool = slot.load();
  while (!pool || pool->orphaned()) {
    const Team team = n > 1 && forks() == 0 ? training_team.load() : nullptr;
    auto made = team ? std::make_unique<ThreadPool>(n, team)
                     : std::make_unique<ThreadPool>(n, kTrainingPatience);
    if (slot.compare_exchange_strong(pool, made.get())) return *made.release();
  }
  return *pool;
}

void train_on(Team team) {
  count_forks();  // start now: a child forked before the first pool exists must not use the team
  training_team.store(team);
}

}  // namespace tsm
