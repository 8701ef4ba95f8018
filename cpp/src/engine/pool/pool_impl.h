// The internals of a pool of streams: pool.cc (the scheduler), pool_requests.cc, pool_streams.cc.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/forks.h"
#include "core/ready_fd.h"
#include "engine/pool/fill.h"
#include "engine/pool/pool.h"
#include "engine/pool/queue.h"
#include "engine/pool/step.h"
#include "engine/pool/stream_table.h"
#include "engine/pool/turns.h"

namespace tsm {

using Lock = std::unique_lock<std::mutex>;

struct StreamPool::Impl {
  Impl(std::shared_ptr<const Model> of, const PoolOptions& chosen);

  const std::shared_ptr<const Model> model;
  const PoolOptions options;
  const bool grows;  // the budget, if the device is fast
  const Fill checks;
  const int born = forks();

  std::mutex mutex;  // guards everything below except running requests
  std::condition_variable work, told, room, spilled;
  StreamTable table;
  Turns turns;
  RequestQueue queue;
  ReadyFd ready;
  PoolStats counts;
  bool closing = false;   // no more requests
  bool stepping = false;  // a thread uses the next two
  std::vector<Request*> batch;
  Step next_step;
  double seconds_each;  // of one step of a stream, lately

  std::mutex joining;
  std::thread thread;

  int64_t now() const;
  void refuse_closed() const;  // throws if the pool is closing

  // Streams. These may release the lock for a while, during a spill.
  StreamEntry* find(std::string_view key, Lock& lock);  // null: unknown
  StreamEntry& idle(std::string_view key, Lock& lock);
  // Returns null if the key is unknown; then there is room for a new stream.
  StreamEntry* find_or_make_room(std::string_view key, Lock& lock);
  void spill(StreamEntry& entry, Lock& lock);
  // Updates the entry after its stream has changed. clean: the state is stored elsewhere.
  void changed(StreamEntry& entry, bool clean);

  // Requests.
  template <class Asked>
  uint64_t submit(std::string_view key, const Asked& asked, const Terms& terms);
  void enqueue(Request& request, StreamEntry& entry) noexcept;
  void end_early(Request& request, ErrorKind kind) noexcept;
  void finish(Request& request) noexcept;
  void count(const Request& request) noexcept;
  void tell(Request& request) noexcept;

  // The scheduler.
  bool step(Lock& lock);             // not while another thread is stepping
  int64_t budget() const;            // of the next step: as PoolOptions::prefill_budget
  bool is_short(double most) const;  // the next step: in seconds, as far as one can tell
  void settle(Request& request) noexcept;
  void go_on(const std::vector<Request*>& requests) noexcept;  // those that have not ended
  void run();
};

}  // namespace tsm
