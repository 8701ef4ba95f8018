// tsm for C++17: tsm::StreamPool, many streams by key behind one queue.
//
//   tsm::StreamPool pool(model);
//   const auto ticket = pool.feed("ann", tokens, {tsm::Logits::kLast});
//   for (const tsm::PoolEvent& event : pool.take()) ...             // waits for the first one
//
// Header only, over the C API (tsm/pool.h); the rules given there apply here as well.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsm/pool.h"
#include "tsm/tsm.hpp"

namespace tsm {
inline namespace api_v2 {

// Stores the state of a stream that must make room for another. If it throws, the stream stays, and
// the call that needs the room fails with TSM_FULL.
using Spill =
    std::function<void(std::string_view key, Span<const std::uint8_t> blob, std::int64_t position)>;

// See tsm_pool_options.
struct PoolOptions {
  std::int64_t max_queue = 4096, max_streams = 65536, max_batch = 0;
  std::int64_t prefill_steps = 0, prefill_budget = 0;
  Spill spill = {};
};

enum class Logits { kNone, kLast, kEach };

struct FeedOptions {
  Logits logits = Logits::kNone;
  bool log_probs = false;
  Floats dt = {};
};

struct DrawOptions {
  Sampling sampling = {};
  Span<const std::int64_t> stop = {};  // tokens that end the generation; they are fed as well
  bool progress = false;               // events report tokens as they are drawn
};

struct Terms {
  std::string_view user = {};  // users get equal shares
  int priority = 0;            // 0 to 3, higher goes first
  double timeout = 0;          // seconds; 0: none
  bool save = false;           // the last event carries the state
  // The position that the stream must have when the request begins; otherwise the request fails
  // (TSM_BAD_STATE). Negative: any.
  std::int64_t expected_position = -1;
};

// The progress of a request, or how it ended; see tsm_pool_event.
struct PoolEvent {
  std::uint64_t ticket;
  bool done;
  tsm_status status;
  std::string_view message;
  std::int64_t position;
  Span<const std::int64_t> tokens;
  Floats logits, log_probs;
  Span<const std::uint8_t> blob;
};

// The events that were taken. Their pointers are valid as long as this object exists; it must not
// outlive the pool.
class PoolEvents {
 public:
  PoolEvents(tsm_pool* pool, std::size_t capacity) : pool_(pool), taken_(capacity) {
    for (tsm_pool_event& event : taken_) event = TSM_POOL_EVENT_INIT;
  }
  ~PoolEvents() { release(); }
  PoolEvents(PoolEvents&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        taken_(std::move(other.taken_)),
        events_(std::move(other.events_)) {}
  PoolEvents& operator=(PoolEvents&&) = delete;

  const PoolEvent* begin() const { return events_.data(); }
  const PoolEvent* end() const { return events_.data() + events_.size(); }
  std::size_t size() const { return events_.size(); }
  bool empty() const { return events_.empty(); }

 private:
  friend class StreamPool;
  void take(double timeout) {
    std::size_t count = 0;
    events_.reserve(taken_.size());
    check(tsm_pool_take(pool_, taken_.data(), taken_.size(), timeout, &count));
    for (std::size_t i = 0; i < count; ++i) {
      const tsm_pool_event& e = taken_[i];
      events_.push_back({e.ticket,
                         e.kind == TSM_POOL_DONE,
                         tsm_status(e.status),
                         e.message,
                         e.position,
                         {e.tokens, e.token_count},
                         {e.logits, e.logit_count},
                         {e.log_probs, e.log_prob_count},
                         {static_cast<const std::uint8_t*>(e.blob), e.blob_bytes}});
    }
  }
  void release() {
    if (pool_) tsm_pool_release(pool_, taken_.data(), events_.size());
  }

  tsm_pool* pool_;
  std::vector<tsm_pool_event> taken_;
  std::vector<PoolEvent> events_;
};

class StreamPool {
 public:
  explicit StreamPool(const Model& model, PoolOptions options = {})
      : spill_(std::make_unique<Spill>(std::move(options.spill))),
        input_size_(std::size_t(model.input_size())) {
    tsm_pool_options chosen = TSM_POOL_OPTIONS_INIT;
    chosen.max_queue = options.max_queue;
    chosen.max_streams = options.max_streams;
    chosen.max_batch = options.max_batch;
    chosen.prefill_steps = options.prefill_steps;
    chosen.prefill_budget = options.prefill_budget;
    if (*spill_) {
      chosen.spill = &StreamPool::spill;
      chosen.context = spill_.get();
    }
    tsm_pool* made = nullptr;
    check(tsm_pool_create(model.get(), &chosen, &made));
    pool_.reset(made);
  }

  std::uint64_t feed(std::string_view key, Tokens tokens, const FeedOptions& options = {},
                     const Terms& terms = {}) {
    tsm_pool_input input = TSM_POOL_INPUT_INIT;
    input.tokens = tokens.data();
    input.token_type = tokens.type();
    return feed(key, input, tokens.size(), options, terms);
  }
  std::uint64_t feed(std::string_view key, Floats values, const FeedOptions& options = {},
                     const Terms& terms = {}) {
    const std::size_t I = input_size_ ? input_size_ : 1;  // 0 if it takes tokens: the C API refuses
    require(values.size() % I == 0, "values", values.size(), I);
    tsm_pool_input input = TSM_POOL_INPUT_INIT;
    input.values = values.data();
    return feed(key, input, values.size() / I, options, terms);
  }
  std::uint64_t generate(std::string_view key, std::int64_t n, const DrawOptions& options = {},
                         const Terms& terms = {}) {
    tsm_sampling sampling = TSM_SAMPLING_INIT;
    sampling.temperature = options.sampling.temperature;
    sampling.top_k = options.sampling.top_k;
    sampling.top_p = options.sampling.top_p;
    sampling.seed = options.sampling.seed;
    sampling.dt = options.sampling.dt;
    tsm_pool_draw draw = TSM_POOL_DRAW_INIT;
    draw.n = n;
    draw.sampling = &sampling;
    draw.stop = options.stop.data();
    draw.stop_count = options.stop.size();
    draw.progress = options.progress;
    const tsm_pool_terms chosen = terms_of(terms);
    std::uint64_t ticket = 0;
    check(tsm_pool_generate(get(), key.data(), key.size(), &draw, &chosen, &ticket));
    return ticket;
  }
  bool cancel(std::uint64_t ticket) {
    int cancelled = 0;
    check(tsm_pool_cancel(get(), ticket, &cancelled));
    return cancelled != 0;
  }

  // Waits for the first event. timeout is in seconds: 0 does not wait, a negative value waits
  // forever. With a negative timeout, an empty result means that the pool is closed and all events
  // have been taken.
  PoolEvents take(std::size_t most = 64, double timeout = -1) {
    PoolEvents events(get(), most);
    events.take(timeout);
    return events;
  }
  bool wait_room(double timeout = -1) {
    int room = 0;
    check(tsm_pool_wait_room(get(), timeout, &room));
    return room != 0;
  }
  int fileno() const { return tsm_pool_fileno(get()); }

  void put(std::string_view key, Span<const std::uint8_t> blob) {
    check(tsm_pool_put(get(), key.data(), key.size(), blob.data(), blob.size()));
  }
  std::vector<std::uint8_t> save(std::string_view key) {
    std::size_t bytes = 0;
    check(tsm_pool_save(get(), key.data(), key.size(), nullptr, 0, &bytes));
    std::vector<std::uint8_t> blob(bytes);
    check(tsm_pool_save(get(), key.data(), key.size(), blob.data(), blob.size(), &bytes));
    return blob;
  }
  bool has(std::string_view key) {
    int known = 0;
    check(tsm_pool_has(get(), key.data(), key.size(), &known));
    return known != 0;
  }
  void drop(std::string_view key) { check(tsm_pool_drop(get(), key.data(), key.size())); }
  void reset(std::string_view key) { check(tsm_pool_reset(get(), key.data(), key.size())); }
  void fork(std::string_view key, std::string_view new_key) {
    check(tsm_pool_fork(get(), key.data(), key.size(), new_key.data(), new_key.size()));
  }
  std::int64_t position(std::string_view key) {
    std::int64_t steps = 0;
    check(tsm_pool_get_position(get(), key.data(), key.size(), &steps));
    return steps;
  }

  tsm_pool_stats stats() {
    tsm_pool_stats found = TSM_POOL_STATS_INIT;
    check(tsm_pool_get_stats(get(), &found));
    return found;
  }
  void close(bool drain = true) { check(tsm_pool_close(get(), drain)); }
  tsm_pool* get() const { return pool_.get(); }

 private:
  static void require(bool right, const char* name, std::size_t found, std::size_t accepted) {
    if (right) return;
    const std::string message = std::string(name) + " holds " + std::to_string(found) +
                                " values; accepted: " + std::to_string(accepted) + " per step";
    throw Error(TSM_INVALID_ARGUMENT, message.c_str());
  }
  static tsm_pool_terms terms_of(const Terms& terms) {
    tsm_pool_terms chosen = TSM_POOL_TERMS_INIT;
    chosen.user = terms.user.data();
    chosen.user_bytes = terms.user.size();
    chosen.priority = terms.priority;
    chosen.timeout = terms.timeout;
    chosen.save = terms.save;
    chosen.has_expected_position = terms.expected_position >= 0;
    chosen.expected_position = terms.expected_position < 0 ? 0 : terms.expected_position;
    return chosen;
  }
  std::uint64_t feed(std::string_view key, tsm_pool_input& input, std::size_t T,
                     const FeedOptions& options, const Terms& terms) {
    require(options.dt.empty() || options.dt.size() == T, "dt", options.dt.size(), 1);
    input.T = std::int64_t(T);
    input.dt = options.dt.data();
    input.logits = int(options.logits);
    input.log_probs = options.log_probs;
    const tsm_pool_terms chosen = terms_of(terms);
    std::uint64_t ticket = 0;
    check(tsm_pool_feed(get(), key.data(), key.size(), &input, &chosen, &ticket));
    return ticket;
  }
  // No exception may pass through C.
  static int spill(void* context, const void* key, std::size_t key_bytes, const void* blob,
                   std::size_t blob_bytes, std::int64_t position) {
    try {
      (*static_cast<const Spill*>(context))({static_cast<const char*>(key), key_bytes},
                                            {static_cast<const std::uint8_t*>(blob), blob_bytes},
                                            position);
      return 0;
    } catch (...) {
      return 1;
    }
  }
  struct Free {
    void operator()(tsm_pool* pool) const { tsm_pool_free(pool); }
  };
  std::unique_ptr<Spill> spill_;  // outlives the pool
  std::unique_ptr<tsm_pool, Free> pool_;
  std::size_t input_size_;
};

}  // namespace api_v2
}  // namespace tsm
