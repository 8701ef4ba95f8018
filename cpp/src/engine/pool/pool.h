// A pool of streams by key with its own scheduler. Requests are queued, and every step feeds all
// streams that have work in one call.
//
// - A stream is identified by its key. A request for an unknown key begins a new stream at position
//   0. Requests for the same key run in the order of their arrival.
// - A request of several steps runs in pieces, and streams may join and leave between any two of
//   them; engine/pool/turns.h decides whose turn it is. On the CPU the results equal those of a
//   stream used alone, bit for bit.
// - At most max_streams are kept. A further one replaces the least recently used idle stream, which
//   is dropped if its state is stored elsewhere (it has not advanced since it was saved or put) and
//   spilled otherwise. Without a spill function only stored streams are replaced; if there is none,
//   the new key is refused.
// - A request that fails, is cancelled or misses its deadline leaves its stream unchanged. The
//   exception is a generation with progress: its stream keeps the tokens fed so far, and its last
//   event lists them.
//
// Any thread may make any call. What cannot be done at once is refused with tsm::Error: kFull,
// kBusy (the key has unfinished requests), kDeadline, kClosed. In a child created by fork() every
// call is refused (kClosed), and the destructor frees nothing.
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

  // Streams. An unknown key is kInvalidArgument, except in put, has and drop.
  void put(std::string_view key, const uint8_t* blob, int64_t bytes);  // kBadState, as Stream::load
  bool has(std::string_view key);
  bool drop(std::string_view key);                            // false: unknown
  void fork(std::string_view key, std::string_view new_key);  // which must be unknown
  void reset(std::string_view key);
  std::vector<uint8_t> save(std::string_view key);
  int64_t blob_bytes() const;  // of each
  int64_t position(std::string_view key);

  // Requests. Their events carry the ticket. An invalid request throws.
  uint64_t feed(std::string_view key, const FeedRequest& asked, const Terms& terms);
  uint64_t generate(std::string_view key, const GenerateRequest& asked, const Terms& terms);
  // Starts the requests that were submitted without Terms::wake. On a CPU, a step that should take
  // at most `seconds` runs on the calling thread, if no other thread runs one; returns whether it
  // did.
  bool wake(double seconds);
  bool cancel(uint64_t ticket);    // false if it is finished or never existed
  bool wait_room(double timeout);  // until the queue is not full; in seconds, < 0: forever
  int fd() const;                  // readable while events are waiting

  // take waits for an event, then returns up to `most` of them in order. put_back: the events
  // could not be delivered; the next call returns them first. give_back: their memory is reused for
  // later events.
  std::vector<std::unique_ptr<PoolEvent>> take(int64_t most, double timeout);
  void put_back(std::vector<std::unique_ptr<PoolEvent>> events) noexcept;
  void give_back(std::unique_ptr<PoolEvent> event);

  PoolStats stats();
  // Refuses new requests. With `drain`, pending requests are finished first; otherwise they end
  // with kClosed. Afterwards their events can still be taken.
  void close(bool drain);
  bool closed();
  // Runs one step on the calling thread, for own_thread = false. Returns false if there was nothing
  // to do.
  bool step();

 private:
  struct Impl;
  Impl& open();  // kClosed in a child created by fork()
  std::unique_ptr<Impl> impl_;
};

}  // namespace tsm
