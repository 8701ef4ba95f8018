// The requests of a pool, from acceptance until their last event has been taken. They are found by
// ticket and by deadline, and those with an event to deliver are in a list. The caller holds the
// pool's lock.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/pool/request.h"

namespace tsm {

class RequestQueue {
 public:
  explicit RequestQueue(int64_t most) : most_(most) { spare_.reserve(size_t(most)); }
  ~RequestQueue() {
    while (put_back_) put_back_ = std::move(put_back_->next);  // iteratively, not by recursion
  }

  bool full() const { return count_ == most_; }
  int64_t count() const { return count_; }
  int64_t events() const { return events_count_; }
  Request& add();  // with its own event and ticket
  void free(Request& slot);
  Request* find(uint64_t ticket);  // null if it was finished and taken, or never existed
  template <class F>
  void each(const F& f) {
    for (const auto& slot : slots_) {
      if (slot->ticket) f(*slot);
    }
  }

  void watch(Request& request);  // adds its deadline
  bool watches() const { return !deadlines_.empty(); }
  Request* expired(int64_t now);  // an unfinished request; null if there is none

  void tell(Request& request);  // queues an event: progress, or the end
  // The next event. Frees the request if it is finished.
  std::unique_ptr<PoolEvent> next_event();
  void put_back(std::unique_ptr<PoolEvent> event) noexcept;  // to be the next one
  void give_back(std::unique_ptr<PoolEvent> event);

 private:
  std::unique_ptr<PoolEvent> spare_event();

  const int64_t most_;
  int64_t count_ = 0, events_count_ = 0;
  uint64_t serial_ = 0;
  std::vector<std::unique_ptr<Request>> slots_;
  std::vector<size_t> free_;
  std::vector<std::unique_ptr<PoolEvent>> spare_;
  std::vector<std::pair<int64_t, uint64_t>> deadlines_;  // a heap, soonest first; some have ended
  Linked<Request, &Request::in_events> telling_;
  std::unique_ptr<PoolEvent> put_back_;  // a list
};

}  // namespace tsm
