// A few threads that wait for work: fork and join in about a microsecond while they spin.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>

namespace tsm {

// Threads that another library keeps: calls f(data) on so many of them at once, the caller among
// them, and returns when all are back. An OpenMP runtime has this as GOMP_parallel.
using Team = void (*)(void (*f)(void* data), void* data, unsigned threads, unsigned flags);

// run(parts, f): f(part) for every part in [0, parts), on the calling thread and the pool's
// workers; returns when all are done. Parts are taken one by one, so that a thread that gets
// less of a core does fewer. What a part computes must not depend on the others. If parts throw,
// run rethrows one of the exceptions after all parts are done. One caller at a time has the
// workers; a second one meanwhile (and a part that calls run) does its parts alone, so that no
// caller waits for another. Workers spin for a moment after work, then offer their core to others
// for as long as their patience lasts, then sleep. The workers are joined when the pool goes; one
// that is leaked at exit is never destroyed while a worker waits. In a child made by fork() a pool
// of the parent has no workers: run does everything alone there, and training_pool makes new ones.
class ThreadPool {
 public:
  // The caller counts as one; 1: no workers. Fewer where the system has no more threads.
  explicit ThreadPool(int threads, std::chrono::microseconds patience = {});
  // No workers: parts run on the team, of which every caller has one; also on fewer threads than
  // asked for.
  ThreadPool(int threads, Team team);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  bool orphaned() const;  // made before a fork(), in the parent

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

// The process's pool for training with that many threads: made on first use, kept for ever.
ThreadPool& training_pool(int threads);
// Pools made after this run on the team. A library that computes between our layers keeps its
// threads spinning; workers of our own would compete with them for every core. Not in a child made
// by fork(), whose teams are gone.
void train_on(Team team);

}  // namespace tsm
