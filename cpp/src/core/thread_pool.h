// A pool of threads. Starting a job and waiting for its end takes about a microsecond while the
// threads spin.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>

namespace tsm {

// Threads that belong to another library. Calls f(data) on `threads` of them at once, including the
// caller, and returns when all are done. In an OpenMP runtime this is GOMP_parallel.
using Team = void (*)(void (*f)(void* data), void* data, unsigned threads, unsigned flags);

// run(parts, f) calls f(part) for every part in [0, parts) on the calling thread and the pool's
// workers, and returns when all are done. Parts are taken one by one, so that a slow thread does
// fewer of them. Parts must not depend on each other. If parts throw, run rethrows one of the
// exceptions after all parts are done. Only one caller at a time uses the workers. A second caller,
// or a part that calls run, does its parts alone, so that no caller waits for another. Parts
// compute in the caller's floating-point mode, so that it does not matter which thread takes one.
// After a job, workers spin briefly, then keep yielding their core for up to `patience`, then
// sleep. The destructor joins the workers; a pool that is needed until exit is leaked, so that it
// is never destroyed while a worker waits. In a child created by fork(), a pool of the parent has
// no workers: run does everything on the calling thread, and training_pool creates new pools.
class ThreadPool {
 public:
  // The caller counts as one thread, so 1 means no workers. The pool has fewer threads if the
  // system cannot create that many.
  explicit ThreadPool(int threads, std::chrono::microseconds patience = {});
  // Has no workers of its own: parts run on the team. Every caller has its own team, which may have
  // fewer threads than requested.
  ThreadPool(int threads, Team team);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  bool orphaned() const;  // created by the parent before a fork()

  template <class Function>
  void run(int64_t parts, const Function& f) {
    run(
        parts,
        [](const void* context, int64_t part) { (*static_cast<const Function*>(context))(part); },
        &f);
  }

 private:
  void run(int64_t parts, void (*f)(const void* context, int64_t part), const void* context);

  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// The cores that this process may use: those of its affinity mask, within the CPU limit of its
// control group (a container's); at least 1.
int usable_cores();

// The process's pool for training with that many threads: created on first use and kept forever.
ThreadPool& training_pool(int threads);
// Pools created after this call run on the team. The library that computes between our layers keeps
// its threads spinning, and workers of our own would compete with them for every core. The call has
// no effect in a child created by fork(), where the team's threads are gone.
void train_on(Team team);

}  // namespace tsm
