// The C API's pool of streams (tsm/pool.h).
#include "tsm/pool.h"

#include <cstddef>
#include <string_view>

#include "c_api/handles.h"
#include "c_api/sized.h"
#include "engine/pool/pool.h"

struct tsm_pool {
  tsm::StreamPool pool;
};

namespace tsm::c_api {
namespace {

StreamPool& pool_of(tsm_pool* pool) { return given(pool, "pool")->pool; }

std::string_view key_of(const void* key, size_t bytes, const char* name = "key") {
  if (bytes > 0) given(key, name);
  return {static_cast<const char*>(key), bytes};
}

Terms terms_of(const tsm_pool_terms* given_terms) {
  const auto chosen = read_known(given_terms, tsm_pool_terms TSM_POOL_TERMS_INIT, "terms");
  Terms terms;
  terms.user = key_of(chosen.user, chosen.user_bytes, "terms->user");
  terms.priority = chosen.priority;
  terms.has_timeout = chosen.timeout != 0;
  terms.timeout = chosen.timeout;
  terms.save = chosen.save != 0;
  terms.has_expected_position = chosen.has_expected_position != 0;
  terms.expected_position = chosen.expected_position;
  return terms;
}

LogitsOf logits_of(int32_t logits) {
  require(logits >= TSM_POOL_NO_LOGITS && logits <= TSM_POOL_ALL_LOGITS,
          "input->logits = " + std::to_string(logits) +
              "; accepted: TSM_POOL_NO_LOGITS, TSM_POOL_LAST_LOGITS, TSM_POOL_ALL_LOGITS");
  return LogitsOf(logits);
}

PoolOptions options_of(const tsm_pool_options* given_options) {
  const auto chosen = read_known(given_options, tsm_pool_options TSM_POOL_OPTIONS_INIT, "options");
  PoolOptions options;
  options.max_queue = chosen.max_queue;
  options.max_streams = chosen.max_streams;
  options.max_batch = chosen.max_batch;
  options.prefill_steps = chosen.prefill_steps;
  options.prefill_budget = chosen.prefill_budget;
  if (chosen.spill) {
    options.spill = [spill = chosen.spill, context = chosen.context](
                        std::string_view key, const std::vector<uint8_t>& blob, int64_t position) {
      const int status = spill(context, key.data(), key.size(), blob.data(), blob.size(), position);
      require(status == 0, "options->spill returned " + std::to_string(status) + "; accepted: 0",
              ErrorKind::kFull);
    };
  }
  return options;
}

// The caller's array; the size of the first element applies to all.
class EventArray {
 public:
  EventArray(tsm_pool_event* events, size_t capacity) : first_(reinterpret_cast<char*>(events)) {
    each_ = given(events, "events")->size;
    // Allocate nothing unless there is an error: returning events must not need memory.
    if (each_ < offsetof(tsm_pool_event, owner) + sizeof(void*) ||
        each_ % alignof(tsm_pool_event) != 0)
      throw Error("events[0].size = " + std::to_string(each_) + "; accepted: sizeof(*events), " +
                  std::to_string(sizeof(tsm_pool_event)));
    if (capacity > size_t(PTRDIFF_MAX) / each_)
      throw Error("capacity = " + std::to_string(capacity) + "; accepted: the number of events");
  }
  tsm_pool_event& operator[](size_t i) const {
    return *reinterpret_cast<tsm_pool_event*>(first_ + i * each_);
  }
  void write(size_t i, std::unique_ptr<PoolEvent> event) const {
    const bool failed = event->error != ErrorKind();
    tsm_pool_event told = TSM_POOL_EVENT_INIT;
    told.ticket = event->ticket;
    told.kind = event->done ? TSM_POOL_DONE : TSM_POOL_PROGRESS;
    told.status = failed ? status_of(event->error) : TSM_OK;
    told.message = event->message.c_str();
    told.position = event->position;
    if (event->generated) told.tokens = event->tokens.data();
    told.token_count = event->tokens.size();
    if (event->logits_of != LogitsOf::kNone && !failed) {
      told.logits = event->logits.data();
      told.logit_count = event->logits.size();
    }
    if (event->scored && !failed) {
      told.log_probs = event->log_probs.data();
      told.log_prob_count = event->log_probs.size();
    }
    if (event->saved) {
      told.blob = event->blob.data();
      told.blob_bytes = event->blob.size();
    }
    told.owner = event.release();
    (*this)[i].size = each_;
    write_known(&(*this)[i], told, "events");
  }

 private:
  char* first_;
  size_t each_;
};

}  // namespace
}  // namespace tsm::c_api

using namespace tsm;
using namespace tsm::c_api;

extern "C" {

tsm_status tsm_pool_create(const tsm_model* model, const tsm_pool_options* options,
                           tsm_pool** pool) {
  return guard([&] {
    model_of(model);
    given(pool, "pool");
    *pool = new tsm_pool{StreamPool(model->model, options_of(options))};
  });
}

tsm_status tsm_pool_close(tsm_pool* pool, int drain) {
  return guard([&] { pool_of(pool).close(drain != 0); });
}

void tsm_pool_free(tsm_pool* pool) { delete pool; }

tsm_status tsm_pool_put(tsm_pool* pool, const void* key, size_t key_bytes, const void* blob,
                        size_t blob_bytes) {
  return guard([&] {
    require(blob_bytes <= size_t(PTRDIFF_MAX),
            "blob_bytes = " + std::to_string(blob_bytes) + "; accepted: the size of the blob");
    pool_of(pool).put(key_of(key, key_bytes), static_cast<const uint8_t*>(given(blob, "blob")),
                      int64_t(blob_bytes));
  });
}

tsm_status tsm_pool_save(tsm_pool* pool, const void* key, size_t key_bytes, void* buffer,
                         size_t room, size_t* bytes) {
  return guard([&] {
    StreamPool& streams = pool_of(pool);
    const size_t needed = size_t(streams.blob_bytes());
    *given(bytes, "bytes") = needed;
    if (!buffer) return;
    require(room >= needed, "room = " + std::to_string(room) + " bytes; accepted: at least " +
                                std::to_string(needed));
    const std::vector<uint8_t> blob = streams.save(key_of(key, key_bytes));
    std::memcpy(buffer, blob.data(), needed);
  });
}

tsm_status tsm_pool_has(tsm_pool* pool, const void* key, size_t key_bytes, int* known) {
  return guard([&] { *given(known, "known") = pool_of(pool).has(key_of(key, key_bytes)); });
}

tsm_status tsm_pool_drop(tsm_pool* pool, const void* key, size_t key_bytes) {
  return guard([&] { pool_of(pool).drop(key_of(key, key_bytes)); });
}

tsm_status tsm_pool_reset(tsm_pool* pool, const void* key, size_t key_bytes) {
  return guard([&] { pool_of(pool).reset(key_of(key, key_bytes)); });
}

tsm_status tsm_pool_fork(tsm_pool* pool, const void* key, size_t key_bytes, const void* new_key,
                         size_t new_key_bytes) {
  return guard([&] {
    pool_of(pool).fork(key_of(key, key_bytes), key_of(new_key, new_key_bytes, "new_key"));
  });
}

tsm_status tsm_pool_get_position(tsm_pool* pool, const void* key, size_t key_bytes,
                                 int64_t* steps) {
  return guard([&] { *given(steps, "steps") = pool_of(pool).position(key_of(key, key_bytes)); });
}

tsm_status tsm_pool_feed(tsm_pool* pool, const void* key, size_t key_bytes,
                         const tsm_pool_input* input, const tsm_pool_terms* terms,
                         uint64_t* ticket) {
  return guard([&] {
    StreamPool& streams = pool_of(pool);
    const auto in = read_known(given(input, "input"), tsm_pool_input TSM_POOL_INPUT_INIT, "input");
    given(ticket, "ticket");
    FeedRequest asked;
    asked.tokens = Tokens(in.tokens, token_type_of(in.token_type));
    asked.values = in.values;
    asked.steps = in.T;
    asked.dt = in.dt;
    asked.logits = logits_of(in.logits);
    asked.log_probs = in.log_probs != 0;
    *ticket = streams.feed(key_of(key, key_bytes), asked, terms_of(terms));
  });
}

tsm_status tsm_pool_generate(tsm_pool* pool, const void* key, size_t key_bytes,
                             const tsm_pool_draw* draw, const tsm_pool_terms* terms,
                             uint64_t* ticket) {
  return guard([&] {
    StreamPool& streams = pool_of(pool);
    const auto drawn = read_known(given(draw, "draw"), tsm_pool_draw TSM_POOL_DRAW_INIT, "draw");
    const auto how = read_known(drawn.sampling, tsm_sampling TSM_SAMPLING_INIT, "sampling");
    given(ticket, "ticket");
    if (drawn.stop_count > 0) given(drawn.stop, "draw->stop");
    GenerateRequest asked;
    asked.n = drawn.n;
    asked.sampling = {how.temperature, how.top_k, how.top_p, how.seed};
    asked.dt = float(how.dt);
    asked.stop = drawn.stop;
    asked.stop_count = int64_t(drawn.stop_count);
    asked.progress = drawn.progress != 0;
    *ticket = streams.generate(key_of(key, key_bytes), asked, terms_of(terms));
  });
}

tsm_status tsm_pool_cancel(tsm_pool* pool, uint64_t ticket, int* cancelled) {
  return guard([&] {
    const bool was = pool_of(pool).cancel(ticket);
    if (cancelled) *cancelled = was;
  });
}

tsm_status tsm_pool_wait_room(tsm_pool* pool, double timeout, int* has_room) {
  return guard([&] {
    const bool room = pool_of(pool).wait_room(timeout);
    if (has_room) *has_room = room;
  });
}

tsm_status tsm_pool_take(tsm_pool* pool, tsm_pool_event* events, size_t capacity, double timeout,
                         size_t* count) {
  return guard([&] {
    StreamPool& streams = pool_of(pool);
    *given(count, "count") = 0;
    const EventArray array(events, capacity);
    auto taken = streams.take(int64_t(capacity), timeout);
    for (size_t i = 0; i < taken.size(); ++i) array.write(i, std::move(taken[i]));
    *count = taken.size();
  });
}

tsm_status tsm_pool_release(tsm_pool* pool, tsm_pool_event* events, size_t count) {
  return guard([&] {
    StreamPool& streams = pool_of(pool);
    if (count == 0) return;
    const EventArray array(events, count);
    for (size_t i = 0; i < count; ++i) {
      auto* const owner = static_cast<PoolEvent*>(std::exchange(array[i].owner, nullptr));
      if (owner) streams.give_back(std::unique_ptr<PoolEvent>(owner));
    }
  });
}

int tsm_pool_fileno(const tsm_pool* pool) { return pool ? pool->pool.fd() : -1; }

tsm_status tsm_pool_get_stats(tsm_pool* pool, tsm_pool_stats* stats) {
  return guard([&] {
    const PoolStats found = pool_of(pool).stats();
    tsm_pool_stats told = TSM_POOL_STATS_INIT;
    told.requests = found.requests;
    told.refused = found.refused;
    told.finished = found.finished;
    told.failed = found.failed;
    told.cancelled = found.cancelled;
    told.deadline_misses = found.deadline_misses;
    told.fed_tokens = found.fed_tokens;
    told.generated_tokens = found.generated_tokens;
    told.queue = found.queue;
    told.events = found.events;
    told.streams = found.streams;
    told.spilled = found.spilled;
    told.dropped = found.dropped;
    told.batches = found.batches;
    std::copy(std::begin(found.batch_sizes), std::end(found.batch_sizes), told.batch_sizes);
    write_known(stats, told, "stats");
  });
}

}  // extern "C"
