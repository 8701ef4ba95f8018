#include "engine/pool/pool.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/forks.h"
#include "core/no_signals.h"
#include "core/ready_fd.h"
#include "engine/pool/fill.h"
#include "engine/pool/queue.h"
#include "engine/pool/step.h"
#include "engine/pool/stream_table.h"
#include "engine/pool/turns.h"

namespace tsm {
namespace {

using Lock = std::unique_lock<std::mutex>;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

int64_t steady_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

const PoolOptions& checked(const PoolOptions& options) {
  const auto within = [](const char* name, int64_t value, int64_t least, int64_t most) {
    require(value >= least && value <= most, std::string(name) + " = " + std::to_string(value) +
                                                 "; accepted: " + std::to_string(least) + " to " +
                                                 std::to_string(most));
  };
  within("max_queue", options.max_queue, 1, 1 << 20);
  within("max_streams", options.max_streams, 1, int64_t(1) << 40);
  within("max_batch", options.max_batch, 1, 1 << 16);
  within("prefill_steps", options.prefill_steps, 1, 1 << 16);
  within("prefill_budget", options.prefill_budget, options.prefill_steps, 1 << 24);
  return options;
}

[[noreturn]] void refuse_closed(const char* why = "the pool is closed") {
  throw Error(why, ErrorKind::kClosed);
}

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

// f() until it is true; false: the time is over. timeout in seconds, below 0: for ever.
template <class F>
bool wait_for(std::condition_variable& changed, Lock& lock, double timeout, const F& f) {
  if (timeout < 0) {
    changed.wait(lock, f);
    return true;
  }
  return changed.wait_for(lock, std::chrono::duration<double>(std::min(timeout, 1e9)), f);
}

}  // namespace

struct StreamPool::Impl {
  Impl(std::shared_ptr<const Model> of, const PoolOptions& chosen)
      : model(std::move(of)),
        options(checked(chosen)),
        checks(*model),
        queue(options.max_queue),
        next_step(*model, options) {
    count_forks();
    batch.reserve(size_t(options.max_batch));
  }

  const std::shared_ptr<const Model> model;
  const PoolOptions options;
  const Fill checks;
  const int born = forks();

  std::mutex mutex;  // of everything below, but for what is running
  std::condition_variable work, told, room, spilled;
  StreamTable table;
  Turns turns;
  RequestQueue queue;
  ReadyFd ready;
  PoolStats counts;
  bool closing = false;  // no more requests
  std::vector<Request*> batch;
  Step next_step;

  std::mutex joining;
  std::thread thread;

  int64_t now() const { return options.now ? options.now() : steady_now(); }

  // ---- streams

  StreamEntry* find(std::string_view key, Lock& lock) {
    check_name("key", key);
    for (;;) {
      StreamEntry* const found = table.find(key);
      if (!found || !found->spilling) return found;
      spilled.wait(lock);  // then it is gone, or it is there again
    }
  }

  StreamEntry& idle(std::string_view key, Lock& lock) {
    StreamEntry* const found = find(key, lock);
    require(found, "key is not in the pool; accepted: that of a stream which was put or fed");
    refuse_busy(*found);
    return *found;
  }

  static void refuse_busy(const StreamEntry& entry) {
    require(!entry.busy(), "the stream has requests that are not finished; accepted: an idle one",
            ErrorKind::kBusy);
  }

  // The stream of that key; null: it is unknown, and there is room for it.
  StreamEntry* find_or_make_room(std::string_view key, Lock& lock) {
    for (;;) {
      if (StreamEntry* const found = find(key, lock)) return found;
      if (table.size() < options.max_streams) return nullptr;
      StreamEntry* const oldest = table.oldest(!options.spill);
      if (!oldest) {
        ++counts.refused;
        throw Error("max_streams = " + std::to_string(options.max_streams) +
                        " streams are in use or were not saved; accepted: known keys, until some "
                        "are saved or dropped",
                    ErrorKind::kFull);
      }
      if (!oldest->clean) {
        spill(*oldest, lock);
        continue;
      }
      table.erase(*oldest);
      ++counts.dropped;
    }
  }

  void spill(StreamEntry& entry, Lock& lock) {
    table.use(entry);
    entry.spilling = true;
    lock.unlock();
    try {
      options.spill(entry.key, entry.stream->save(), entry.position);
    } catch (...) {
      lock.lock();
      entry.spilling = false;
      table.idle(entry);
      spilled.notify_all();
      throw;
    }
    lock.lock();
    table.erase(entry);
    ++counts.spilled;
    spilled.notify_all();
  }

  // ---- requests

  template <class Asked>
  uint64_t submit(std::string_view key, const Asked& asked, const Terms& terms) {
    check_name("key", key);
    checks.check(terms);
    Lock lock(mutex);
    if (closing) refuse_closed();
    if (queue.full()) {
      ++counts.refused;
      throw Error("max_queue = " + std::to_string(options.max_queue) +
                      " requests are waiting or were not taken; accepted: one more when some were",
                  ErrorKind::kFull);
    }
    Request& request = queue.add();
    try {
      lock.unlock();
      checks.fill(request, asked, options);
      request.event->saved = terms.save;
      if (terms.has_timeout) request.deadline = deadline(terms.timeout);
      lock.lock();
      StreamEntry* entry = find_or_make_room(key, lock);
      if (!entry) entry = &table.add(key, model->create_stream(), true);
      if (closing) refuse_closed();
      if (request.deadline) queue.watch(request);
      request.line = &turns.join(terms.user, terms.priority);
      enqueue(request, *entry);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      queue.free(request);
      room.notify_one();
      throw;
    }
    return request.ticket;
  }

  int64_t deadline(double seconds) const {
    const double at = double(now()) + seconds * 1e9;
    return at < double(kNever) ? int64_t(at) : kNever;
  }

  void enqueue(Request& request, StreamEntry& entry) noexcept {
    table.use(entry);
    request.entry = &entry;
    entry.requests.push_back(request);
    if (entry.requests.front() == &request) turns.add(request);
    ++counts.requests;
    work.notify_one();
  }

  void end_early(Request& request, ErrorKind kind) noexcept {
    if (request.running) {
      request.asked_to_end = kind;
      return;
    }
    turns.remove(request);
    request.fail(kind, why(kind));
    Step::end(request);
    finish(request);
  }

  void finish(Request& request) noexcept {
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

  void count(const Request& request) noexcept {
    const ErrorKind error = request.event->error;
    int64_t& counter = error == ErrorKind()             ? counts.finished
                       : error == ErrorKind::kCancelled ? counts.cancelled
                       : error == ErrorKind::kDeadline  ? counts.deadline_misses
                                                        : counts.failed;
    ++counter;
  }

  void tell(Request& request) noexcept {
    queue.tell(request);
    ready.set();
    told.notify_one();
  }

  // ---- the scheduler

  bool step(Lock& lock) {
    if (queue.watches()) {
      const int64_t at = now();
      while (Request* late = queue.expired(at)) end_early(*late, ErrorKind::kDeadline);
    }
    turns.choose(options, batch);
    if (batch.empty()) return false;
    for (Request* request : batch) request->running = true;
    lock.unlock();
    next_step.run(batch);
    lock.lock();
    for (Request* request : batch) settle(*request);
    ++counts.batches;
    counts.fed_tokens += next_step.fed();
    counts.generated_tokens += next_step.generated();
    int bin = 0;
    for (size_t size = batch.size(); size > 1 && bin < 15; size /= 2) ++bin;
    ++counts.batch_sizes[bin];
    return true;
  }

  void settle(Request& request) noexcept {
    request.running = false;
    request.entry->position = request.entry->stream->position();
    if (std::exchange(request.has_drawn, false)) request.event->tokens.push_back(request.drawn);
    if (request.failed() || request.is_over()) return finish(request);
    if (!has_room(request)) request.asked_to_end = ErrorKind::kOutOfMemory;
    if (request.asked_to_end != ErrorKind()) return end_early(request, request.asked_to_end);
    turns.add(request);
    if (request.progress && int64_t(request.event->tokens.size()) > request.told) tell(request);
  }

  // For one more token.
  static bool has_room(Request& request) noexcept {
    std::vector<int64_t>& tokens = request.event->tokens;
    if (!request.generates || tokens.size() < tokens.capacity()) return true;
    try {
      tokens.reserve(2 * tokens.size());
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void run() {
    Lock lock(mutex);
    for (;;) {
      work.wait(lock, [this] { return turns.any() || closing; });
      if (!turns.any()) return;
      step(lock);
    }
  }
};

StreamPool::StreamPool(std::shared_ptr<const Model> model, const PoolOptions& options)
    : impl_(new Impl(std::move(model), options)) {
  if (!options.own_thread) return;
  const NoSignals for_it;
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

StreamPool::~StreamPool() {
  if (impl_->born != forks()) {  // no thread to join, and its lock may stay locked
    impl_.release();
    return;
  }
  close(false);
}

StreamPool::Impl& StreamPool::open() {
  if (impl_->born != forks()) refuse_closed("the pool belongs to the process that forked this one");
  return *impl_;
}

const Model& StreamPool::model() const { return *impl_->model; }
int StreamPool::fd() const { return impl_->ready.fd(); }

void StreamPool::put(std::string_view key, const uint8_t* blob, int64_t bytes) {
  Impl& pool = open();
  check_name("key", key);
  std::unique_ptr<Stream> stream = pool.model->create_stream();
  stream->load(blob, bytes);
  const int64_t position = stream->position();
  Lock lock(pool.mutex);
  if (pool.closing) refuse_closed();
  StreamEntry* const entry = pool.find_or_make_room(key, lock);
  if (!entry) {
    pool.table.add(key, std::move(stream), true);
    return;
  }
  Impl::refuse_busy(*entry);
  pool.table.use(*entry);
  entry->stream = std::move(stream);
  entry->position = position;
  entry->clean = true;
  pool.table.idle(*entry);
}

bool StreamPool::has(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  return pool.find(key, lock);
}

bool StreamPool::drop(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  StreamEntry* const entry = pool.find(key, lock);
  if (!entry) return false;
  Impl::refuse_busy(*entry);
  pool.table.erase(*entry);
  return true;
}

void StreamPool::fork(std::string_view key, std::string_view new_key) {
  Impl& pool = open();
  check_name("new_key", new_key);
  Lock lock(pool.mutex);
  if (pool.closing) refuse_closed();
  std::unique_ptr<Stream> twin = pool.idle(key, lock).stream->fork();
  require(!pool.find_or_make_room(new_key, lock),
          "new_key is in the pool; accepted: an unknown one");
  pool.table.add(new_key, std::move(twin), false);
}

void StreamPool::reset(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  StreamEntry& entry = pool.idle(key, lock);
  entry.stream->reset();
  pool.table.use(entry);
  entry.position = 0;
  entry.clean = false;
  pool.table.idle(entry);
}

std::vector<uint8_t> StreamPool::save(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  StreamEntry& entry = pool.idle(key, lock);
  std::vector<uint8_t> blob = entry.stream->save();
  pool.table.use(entry);
  entry.clean = true;
  pool.table.idle(entry);
  return blob;
}

int64_t StreamPool::blob_bytes() const { return impl_->checks.blob_bytes(); }

int64_t StreamPool::position(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  return pool.idle(key, lock).position;
}

uint64_t StreamPool::feed(std::string_view key, const FeedRequest& asked, const Terms& terms) {
  return open().submit(key, asked, terms);
}

uint64_t StreamPool::generate(std::string_view key, const GenerateRequest& asked,
                              const Terms& terms) {
  return open().submit(key, asked, terms);
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
      break;  // the others at the next call
    }
  }
  if (pool.queue.events() == 0) pool.ready.clear();
  if (!pool.queue.full()) pool.room.notify_all();
  if (pool.closing && pool.queue.count() == 0) pool.told.notify_all();
  return events;
}

void StreamPool::give_back(std::unique_ptr<PoolEvent> event) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  pool.queue.give_back(std::move(event));
}

PoolStats StreamPool::stats() {
  Impl& pool = open();
  Lock lock(pool.mutex);
  PoolStats counts = pool.counts;
  counts.queue = pool.queue.count();
  counts.events = pool.queue.events();
  counts.streams = pool.table.size();
  return counts;
}

void StreamPool::close(bool drain) {
  Impl& pool = open();
  {
    Lock lock(pool.mutex);
    pool.closing = true;
    if (!drain) {
      pool.queue.each([&](Request& request) {
        if (request.entry) pool.end_early(request, ErrorKind::kClosed);
      });
    }
    pool.work.notify_all();
    pool.room.notify_all();
    pool.told.notify_all();
  }
  const std::lock_guard joining(pool.joining);
  if (pool.thread.joinable()) pool.thread.join();
  while (step()) {
  }
}

bool StreamPool::closed() {
  Impl& pool = open();
  Lock lock(pool.mutex);
  return pool.closing;
}

bool StreamPool::step() {
  Impl& pool = open();
  Lock lock(pool.mutex);
  return pool.step(lock);
}

}  // namespace tsm
