// The requests of a pool from their acceptance until their end was taken: by ticket, by deadline,
// and which of them have something to tell. The pool holds its lock.
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
    while (put_back_) put_back_ = std::move(put_back_->next);  // not one inside the other
  }

  bool full() const { return count_ == most_; }
  int64_t count() const { return count_; }
  int64_t events() const { return events_count_; }
  Request& add();  // with an event and a ticket of its own
  void free(Request& slot);
  Request* find(uint64_t ticket);  // null: finished and taken, or never there
  template <class F>
  void each(const F& f) {
    for (const auto& slot : slots_) {
      if (slot->ticket) f(*slot);
    }
  }

  void watch(Request& request);  // its deadline
  bool watches() const { return !deadlines_.empty(); }
  Request* expired(int64_t now);  // one that is not finished; null: none

  void tell(Request& request);  // it has gone on, or it is finished
  // The next event; of a request that is finished it frees the request.
  std::unique_ptr<PoolEvent> next_event();
  void put_back(std::unique_ptr<PoolEvent> event) noexcept;  // as the next one
  void give_back(std::unique_ptr<PoolEvent> event);

 private:
  std::unique_ptr<PoolEvent> spare_event();

  const int64_t most_;
  int64_t count_ = 0, events_count_ = 0;
  uint64_t serial_ = 0;
  std::vector<std::unique_ptr<Request>> slots_;
  std::vector<size_t> free_;
  std::vector<std::unique_ptr<PoolEvent>> spare_;
  std::vector<std::pair<int64_t, uint64_t>> deadlines_;  // a heap, soonest first; maybe of the past
  Linked<Request, &Request::in_events> telling_;
  std::unique_ptr<PoolEvent> put_back_;  // a list
};

}  // namespace tsm
