// The requests of a pool, from acceptance to their last event.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "engine/pool/pool_impl.h"

namespace tsm {
namespace {

const char* why(ErrorKind ended) {
  switch (ended) {
    case ErrorKind::kCancelled:
      return "the request was cancelled";
    case ErrorKind::kDeadline:
      return "the deadline has passed";
    case ErrorKind::kClosed:
      return "the pool was closed";
    default:
      return "out of memory";
  }
}

// Waits until f() is true; returns false on timeout. timeout is in seconds; a negative value means
// forever.
template <class F>
bool wait_for(std::condition_variable& changed, Lock& lock, double timeout, const F& f) {
  require(!std::isnan(timeout), "timeout is NaN; accepted: seconds");
  if (timeout < 0) {
    changed.wait(lock, f);
    return true;
  }
  return changed.wait_for(lock, std::chrono::duration<double>(std::min(timeout, 1e9)), f);
}

// The deadline in nanoseconds; `seconds` may be infinite.
int64_t later(int64_t now, double seconds) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const double at = double(now) + seconds * 1e9;
  return at < double(kNever) ? int64_t(at) : kNever;
}

}  // namespace

template <class Asked>
uint64_t StreamPool::Impl::submit(std::string_view key, const Asked& asked, const Terms& terms) {
  check_name("key", key);
  checks.check(terms);
  Lock lock(mutex);
  refuse_closed();
  if (queue.full()) {
    ++counts.refused;
    throw Error("max_queue = " + std::to_string(options.max_queue) +
                    " requests are unfinished or have events that were not taken; accepted: "
                    "another one once some are finished and taken",
                ErrorKind::kFull);
  }
  Request& request = queue.add();
  try {
    lock.unlock();
    checks.fill(request, asked, options);
    request.event->saved = terms.save;
    if (terms.has_expected_position) request.expected_position = terms.expected_position;
    if (terms.has_timeout) request.deadline = later(now(), terms.timeout);
    lock.lock();
    StreamEntry* entry = find_or_make_room(key, lock);
    if (!entry) entry = &table.add(key, model->create_stream(), true);
    refuse_closed();
    if (request.deadline) queue.watch(request);
    request.line = &turns.join(terms.user, terms.priority);
    enqueue(request, *entry);
    const uint64_t ticket = request.ticket;
    lock.unlock();  // before the scheduler is woken, which would wait for it
    if (terms.wake) work.notify_one();
    return ticket;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    queue.free(request);
    room.notify_one();
    throw;
  }
}

void StreamPool::Impl::enqueue(Request& request, StreamEntry& entry) noexcept {
  table.use(entry);
  request.entry = &entry;
  entry.requests.push_back(request);
  if (entry.requests.front() == &request) turns.add(request);
  ++counts.requests;
}

void StreamPool::Impl::end_early(Request& request, ErrorKind kind) noexcept {
  if (request.running) {
    request.asked_to_end = kind;
    return;
  }
  turns.remove(request);
  request.fail(kind, why(kind));
  Step::end(request);
  finish(request);
}

void StreamPool::Impl::finish(Request& request) noexcept {
  count(request);
  StreamEntry& entry = *request.entry;
  const bool was_first = entry.requests.front() == &request;
  entry.requests.remove(request);
  if (was_first) entry.position = entry.stream->position();
  if (!entry.busy())
    table.idle(entry);
  else if (was_first)
    turns.add(*entry.requests.front());
  turns.leave(*request.line);
  request.entry = nullptr;
  request.line = nullptr;
  request.finished = true;
  tell(request);
}

void StreamPool::Impl::count(const Request& request) noexcept {
  const ErrorKind error = request.event->error;
  int64_t& counter = error == ErrorKind()             ? counts.finished
                     : error == ErrorKind::kCancelled ? counts.cancelled
                     : error == ErrorKind::kDeadline  ? counts.deadline_misses
                                                      : counts.failed;
  ++counter;
}

void StreamPool::Impl::tell(Request& request) noexcept {
  queue.tell(request);
  ready.set();
  told.notify_one();
}

uint64_t StreamPool::feed(std::string_view key, const FeedRequest& asked, const Terms& terms) {
  return open().submit(key, asked, terms);
}

uint64_t StreamPool::generate(std::string_view key, const GenerateRequest& asked,
                              const Terms& terms) {
  return open().submit(key, asked, terms);
}

bool StreamPool::wake(double seconds) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  const bool here = pool.is_short(seconds);
  if (here) pool.step(lock);
  const bool more = pool.turns.any() || pool.closing;  // close() may wait for this step
  lock.unlock();  // before the scheduler is woken, which would wait for it
  if (more) pool.work.notify_all();
  return here;
}

bool StreamPool::cancel(uint64_t ticket) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  Request* const request = pool.queue.find(ticket);
  if (!request || request->finished || !request->entry) return false;
  pool.end_early(*request, ErrorKind::kCancelled);
  return true;
}

bool StreamPool::wait_room(double timeout) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  wait_for(pool.room, lock, timeout, [&] { return pool.closing || !pool.queue.full(); });
  return !pool.closing && !pool.queue.full();
}

std::vector<std::unique_ptr<PoolEvent>> StreamPool::take(int64_t most, double timeout) {
  Impl& pool = open();
  require(most >= 1, "max = " + std::to_string(most) + "; accepted: 1 or more");
  std::vector<std::unique_ptr<PoolEvent>> events;
  Lock lock(pool.mutex);
  const auto something = [&] {
    return pool.queue.events() > 0 || (pool.closing && pool.queue.count() == 0);
  };
  if (timeout != 0) wait_for(pool.told, lock, timeout, something);
  events.reserve(size_t(std::min(most, pool.queue.events())));
  while (int64_t(events.size()) < most && pool.queue.events() > 0) {
    try {
      events.push_back(pool.queue.next_event());
    } catch (const std::bad_alloc&) {
      if (events.empty()) throw;
      break;  // the next call returns the others
    }
  }
  if (pool.queue.events() == 0) pool.ready.clear();
  if (!pool.queue.full()) pool.room.notify_all();
  if (pool.closing && pool.queue.count() == 0) pool.told.notify_all();
  return events;
}

void StreamPool::put_back(std::vector<std::unique_ptr<PoolEvent>> events) noexcept {
  Impl& pool = *impl_;
  Lock lock(pool.mutex);
  for (auto event = events.rbegin(); event != events.rend(); ++event)
    pool.queue.put_back(std::move(*event));
  if (pool.queue.events() == 0) return;
  pool.ready.set();
  pool.told.notify_one();
}

void StreamPool::give_back(std::unique_ptr<PoolEvent> event) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  pool.queue.give_back(std::move(event));
}

}  // namespace tsm
