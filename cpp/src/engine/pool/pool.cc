// The scheduler of a pool, and its construction and destruction.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "core/no_signals.h"
#include "engine/pool/pool_impl.h"

namespace tsm {
namespace {

int64_t steady_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

struct Defaults {
  int64_t max_batch, prefill_steps, prefill_budget;
};
constexpr Defaults kCpu{64, 8, 128};
constexpr Defaults kGpu{1024, 256, 65536};  // wide and long: a step costs its launches
constexpr double kLongStep = 0.02;  // seconds: the GPU's budget grows to what they suffice for
constexpr int64_t kMostBudget = 1 << 24;
constexpr double kNewest = 0.1;  // weight of the newest time in a mean

// The options with the device's defaults, all of them within bounds.
PoolOptions completed(PoolOptions options, DeviceKind device) {
  const Defaults& defaults = device == DeviceKind::kCpu ? kCpu : kGpu;
  const auto complete = [](int64_t& value, int64_t otherwise) {
    value = value ? value : otherwise;
  };
  complete(options.max_batch, defaults.max_batch);
  complete(options.prefill_steps, defaults.prefill_steps);
  complete(options.prefill_budget, std::max(defaults.prefill_budget, options.prefill_steps));
  const auto within = [](const char* name, int64_t value, int64_t least, int64_t most) {
    require(value >= least && value <= most, std::string(name) + " = " + std::to_string(value) +
                                                 "; accepted: " + std::to_string(least) + " to " +
                                                 std::to_string(most));
  };
  within("max_queue", options.max_queue, 1, 1 << 20);
  within("max_streams", options.max_streams, 1, int64_t(1) << 40);
  within("max_batch", options.max_batch, 1, 1 << 16);
  within("prefill_steps", options.prefill_steps, 1, 1 << 16);
  within("prefill_budget", options.prefill_budget, options.prefill_steps, kMostBudget);
  return options;
}

// For one more token.
bool has_room(Request& request) noexcept {
  std::vector<int64_t>& tokens = request.event->tokens;
  if (!request.generates || tokens.size() < tokens.capacity()) return true;
  try {
    tokens.reserve(2 * tokens.size());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

StreamPool::Impl::Impl(std::shared_ptr<const Model> of, const PoolOptions& chosen)
    : model(std::move(of)),
      options(completed(chosen, model->device())),
      grows(chosen.prefill_budget == 0 && model->device() == DeviceKind::kCuda),
      checks(*model),
      queue(options.max_queue),
      next_step(*model, options),
      seconds_each(std::numeric_limits<double>::infinity()) {
  count_forks();
  batch.reserve(size_t(options.max_batch));
}

int64_t StreamPool::Impl::now() const { return options.now ? options.now() : steady_now(); }

void StreamPool::Impl::refuse_closed() const {
  if (closing) throw Error("the pool is closed", ErrorKind::kClosed);
}

bool StreamPool::Impl::step(Lock& lock) {
  if (queue.watches()) {
    const int64_t at = now();
    while (Request* late = queue.expired(at)) end_early(*late, ErrorKind::kDeadline);
  }
  turns.choose(options, budget(), batch);
  if (batch.empty()) return false;
  for (Request* request : batch) request->running = true;
  stepping = true;
  lock.unlock();
  const int64_t begin = steady_now();
  next_step.run(batch);
  const auto steps = double(std::max(next_step.fed() + next_step.generated(), int64_t(1)));
  const double took = double(steady_now() - begin) * 1e-9 / steps;
  lock.lock();
  stepping = false;
  seconds_each = std::isinf(seconds_each) ? took : seconds_each + (took - seconds_each) * kNewest;
  for (Request* request : batch) settle(*request);
  go_on(batch);
  ++counts.batches;
  counts.fed_tokens += next_step.fed();
  counts.generated_tokens += next_step.generated();
  int bin = 0;
  for (size_t size = batch.size(); size > 1 && bin < 15; size /= 2) ++bin;
  ++counts.batch_sizes[bin];
  return true;
}

int64_t StreamPool::Impl::budget() const {
  if (!grows) return options.prefill_budget;
  const double affordable = std::min(kLongStep / seconds_each, double(kMostBudget));
  return std::max(options.prefill_budget, int64_t(affordable));
}

bool StreamPool::Impl::is_short(double most) const {
  const auto steps = double(turns.next_steps(options));
  return !stepping && model->device() == DeviceKind::kCpu && steps * seconds_each <= most;
}

void StreamPool::Impl::settle(Request& request) noexcept {
  request.running = false;
  request.position = request.entry->stream->position();
  if (std::exchange(request.has_drawn, false)) request.event->tokens.push_back(request.drawn);
  if (request.failed() || request.is_over()) return finish(request);
  if (!has_room(request)) request.asked_to_end = ErrorKind::kOutOfMemory;
  if (request.asked_to_end != ErrorKind()) return end_early(request, request.asked_to_end);
  if (request.progress && int64_t(request.event->tokens.size()) > request.told) tell(request);
}

void StreamPool::Impl::go_on(const std::vector<Request*>& requests) noexcept {
  const auto ends = [this](const Request& request) {
    return !request.generates && request.steps - request.done <= options.prefill_steps / 2;
  };
  for (Request* request : requests) {
    if (!request->finished && !ends(*request)) turns.add(*request);
  }
  for (auto at = requests.rbegin(); at != requests.rend(); ++at) {
    if (!(*at)->finished && ends(**at)) turns.add_first(**at);
  }
}

void StreamPool::Impl::run() {
  Lock lock(mutex);
  for (;;) {
    work.wait(lock, [this] { return !stepping && (turns.any() || closing); });
    if (!turns.any()) return;
    step(lock);
  }
}

StreamPool::StreamPool(std::shared_ptr<const Model> model, const PoolOptions& options)
    : impl_(new Impl(std::move(model), options)) {
  if (!options.own_thread) return;
  const NoSignals for_it;
  try {
    impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
  } catch (const std::system_error& error) {
    throw Error(std::string("no thread for the pool: ") + error.what(), ErrorKind::kOutOfMemory);
  }
}

StreamPool::~StreamPool() {
  if (impl_->born != forks()) {  // the child has no thread to join, and the lock may stay locked
    impl_.release();
    return;
  }
  close(false);
}

StreamPool::Impl& StreamPool::open() {
  if (impl_->born == forks()) return *impl_;
  throw Error("the pool belongs to the process that forked this one", ErrorKind::kClosed);
}

const Model& StreamPool::model() const { return *impl_->model; }
int StreamPool::fd() const { return impl_->ready.fd(); }

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
  pool.work.wait(lock, [&] { return !pool.stepping; });
  const bool any = pool.step(lock);
  pool.work.notify_all();  // others may wait for the end of this step
  return any;
}

}  // namespace tsm
