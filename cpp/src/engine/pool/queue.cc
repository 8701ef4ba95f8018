#include "engine/pool/queue.h"

#include <algorithm>
#include <functional>

namespace tsm {
namespace {

constexpr int kSlotBits = 24;          // of a ticket
constexpr size_t kMostKept = 1 << 14;  // largest buffer kept for the next request, in elements

template <class T>
std::vector<T> emptied(std::vector<T>& buffer) {
  std::vector<T> kept;
  if (buffer.capacity() <= kMostKept) kept.swap(buffer);
  kept.clear();
  return kept;
}

}  // namespace

void Request::clear() {
  Request fresh;
  fresh.tokens = emptied(tokens);
  fresh.values = emptied(values);
  fresh.dt = emptied(dt);
  fresh.row = emptied(row);
  fresh.before = std::move(before);
  *this = std::move(fresh);
}

Request& RequestQueue::add() {
  if (free_.empty()) {
    if (free_.capacity() <= slots_.size()) free_.reserve(2 * slots_.size() + 1);
    slots_.push_back(std::make_unique<Request>());
    free_.push_back(slots_.size() - 1);
  }
  const size_t slot = free_.back();
  Request& request = *slots_[slot];
  request.event = spare_event();
  free_.pop_back();
  ++count_;
  request.ticket = request.event->ticket = ++serial_ << kSlotBits | slot;
  return request;
}

void RequestQueue::free(Request& request) {
  const size_t slot = request.ticket & ((uint64_t(1) << kSlotBits) - 1);
  if (request.event) give_back(std::move(request.event));
  request.clear();
  free_.push_back(slot);  // `add` has reserved the room
  --count_;
}

Request* RequestQueue::find(uint64_t ticket) {
  const size_t slot = ticket & ((uint64_t(1) << kSlotBits) - 1);
  if (ticket == 0 || slot >= slots_.size() || slots_[slot]->ticket != ticket) return nullptr;
  return slots_[slot].get();
}

void RequestQueue::watch(Request& request) {
  if (deadlines_.size() >= 2 * size_t(most_)) {  // most have passed
    const auto past = [this](const auto& d) { return !find(d.second); };
    deadlines_.erase(std::remove_if(deadlines_.begin(), deadlines_.end(), past), deadlines_.end());
    std::make_heap(deadlines_.begin(), deadlines_.end(), std::greater<>());
  }
  deadlines_.emplace_back(request.deadline, request.ticket);
  std::push_heap(deadlines_.begin(), deadlines_.end(), std::greater<>());
}

Request* RequestQueue::expired(int64_t now) {
  while (!deadlines_.empty() && deadlines_.front().first <= now) {
    Request* const request = find(deadlines_.front().second);
    std::pop_heap(deadlines_.begin(), deadlines_.end(), std::greater<>());
    deadlines_.pop_back();
    if (request && !request->finished) return request;
  }
  return nullptr;
}

void RequestQueue::tell(Request& request) {
  if (telling_.holds(request)) return;
  telling_.push_back(request);
  ++events_count_;
}

std::unique_ptr<PoolEvent> RequestQueue::next_event() {
  if (put_back_) {
    std::unique_ptr<PoolEvent> event = std::move(put_back_);
    put_back_ = std::move(event->next);
    --events_count_;
    return event;
  }
  Request& request = *telling_.front();
  std::unique_ptr<PoolEvent> event;
  if (request.finished) {
    event = std::move(request.event);
    event->done = true;
  } else {
    event = spare_event();
    const std::vector<int64_t>& all = request.event->tokens;
    event->ticket = request.ticket;
    event->generated = true;
    event->position = request.position;
    event->tokens.assign(all.begin() + request.told, all.end());
    request.told = int64_t(all.size());
  }
  telling_.pop_front();
  --events_count_;
  if (request.finished) free(request);
  return event;
}

void RequestQueue::put_back(std::unique_ptr<PoolEvent> event) noexcept {
  event->next = std::move(put_back_);
  put_back_ = std::move(event);
  ++events_count_;
}

std::unique_ptr<PoolEvent> RequestQueue::spare_event() {
  if (spare_.empty()) return std::make_unique<PoolEvent>();
  std::unique_ptr<PoolEvent> event = std::move(spare_.back());
  spare_.pop_back();
  return event;
}

void RequestQueue::give_back(std::unique_ptr<PoolEvent> event) {
  if (!event || spare_.size() == spare_.capacity()) return;  // no room: the event is freed
  PoolEvent fresh;
  fresh.tokens = emptied(event->tokens);
  fresh.logits = emptied(event->logits);
  fresh.log_probs = emptied(event->log_probs);
  fresh.blob = emptied(event->blob);
  *event = std::move(fresh);
  spare_.push_back(std::move(event));
}

}  // namespace tsm
