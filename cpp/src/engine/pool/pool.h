// A pool of streams by key, with a scheduler of its own: requests are queued, and in every step all
// streams that have something to do are fed in one call.
//
// - A stream is known by its key. A request for an unknown key begins one at position 0. Requests
//   for the same key run one after the other, in the order of their arrival.
// - A request of several steps runs in pieces, so that streams join and leave between any two; who
//   runs: engine/pool/turns.h. On the CPU its results are those of a lone stream, to the bit.
// - At most max_streams are kept. For one more, the idle one that was used least recently goes: it
//   is spilled, or dropped where somebody else has its state as well (it was saved since it last
//   moved, or put). Without a spill function, others are not touched, and the new key is refused.
// - A request that fails, is cancelled or too late leaves its stream as it was. Only a generation
//   with progress stays where it stands: its event has the tokens that were drawn and fed.
//
// All calls may be made by any thread; what cannot be done at once is refused with tsm::Error:
// kFull, kBusy (of a key whose requests are not finished), kDeadline, kClosed. In a child made by
// fork() every call is refused (kClosed), and destroying it frees nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/pool/asked.h"

namespace tsm {

class StreamPool {
 public:
  StreamPool(std::shared_ptr<const Model> model, const PoolOptions& options);
  ~StreamPool();  // as close(false)
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;
  const Model& model() const;

  // Streams. Unknown keys are kInvalidArgument, but for put, has and drop.
  void put(std::string_view key, const uint8_t* blob, int64_t bytes);  // kBadState, as Stream::load
  bool has(std::string_view key);
  bool drop(std::string_view key);                            // false: unknown
  void fork(std::string_view key, std::string_view new_key);  // which must be unknown
  void reset(std::string_view key);
  std::vector<uint8_t> save(std::string_view key);
  int64_t blob_bytes() const;  // of each
  int64_t position(std::string_view key);

  // Requests: the ticket stands in their events. What is wrong with one is thrown.
  uint64_t feed(std::string_view key, const FeedRequest& asked, const Terms& terms);
  uint64_t generate(std::string_view key, const GenerateRequest& asked, const Terms& terms);
  bool cancel(uint64_t ticket);    // false: it is finished, or was never there
  bool wait_room(double timeout);  // until the queue is not full; seconds, below 0: for ever
  int fd() const;                  // readable while events wait

  // Up to `most` events, in the order of what they tell; waits for the first one. put_back: they
  // could not be told, and are the first of the next call. give_back: for the next ones, so that
  // they need no memory.
  std::vector<std::unique_ptr<PoolEvent>> take(int64_t most, double timeout);
  void put_back(std::vector<std::unique_ptr<PoolEvent>> events) noexcept;
  void give_back(std::unique_ptr<PoolEvent> event);

  PoolStats stats();
  // No more requests. drain: those that are there are finished; else they end with kClosed. Returns
  // when that is done; their events can still be taken.
  void close(bool drain);
  bool closed();
  // One step, by the calling thread; false: there was nothing to do. For own_thread = false.
  bool step();

 private:
  struct Impl;
  Impl& open();  // kClosed in a child made by fork()
  std::unique_ptr<Impl> impl_;
};

}  // namespace tsm
