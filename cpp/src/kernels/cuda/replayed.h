// Calls that come again with the same addresses, replayed as CUDA graphs.
//
// A call with hundreds of launches takes the host longer than the GPU. In a training loop torch's
// allocator returns the same addresses in almost every update. So a call is captured when its
// addresses come for the second time, and from then on one launch of the graph replaces its
// launches.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace tsm::cuda {

// The launches of one kind of call on one device. Many threads may call `run` at once.
class Replayed {
 public:
  using Addresses = std::array<uintptr_t, 32>;
  using Enqueue = std::function<void(uintptr_t stream)>;

  Replayed();
  ~Replayed();
  Replayed(const Replayed&) = delete;
  Replayed& operator=(const Replayed&) = delete;

  // Runs what `enqueue` puts on a stream: launches whose arguments depend only on `addresses` and
  // on what is the same in all calls of this object. The device must be current. If the stream is
  // being captured by the caller, or there can be no graph, `enqueue` runs directly.
  void run(const Addresses& addresses, uintptr_t stream, const Enqueue& enqueue);

 private:
  struct Kept;
  bool replay(Kept& kept, const Addresses& addresses, uintptr_t stream, const Enqueue& enqueue);

  const int forks_;               // of this process, when it was made
  std::atomic<int64_t> nodes_{};  // launches of a call; 0: not known yet
  std::atomic<bool> failed_{};    // there can be no graph
  const std::unique_ptr<Kept> kept_;
};

// Calls with fewer launches than this are not replayed; 0: none are. At the start it is the
// environment variable TSM_CUDA_REPLAY, or else 0.
void replay_from(int64_t launches);

// What all objects together have done.
struct Replays {
  int64_t graphs;  // that are kept now
  int64_t calls;   // that were replayed
};
Replays replays();

}  // namespace tsm::cuda
