// Helpers for tests that advance a pool step by step: requests to it, and the events that come
// back.
#pragma once
#include <poll.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/pool/pool.h"
#include "support/check.h"
#include "support/fed_models.h"

namespace pools {

using namespace fed;
using tsm::ErrorKind;
using tsm::FeedRequest;
using tsm::GenerateRequest;
using tsm::LogitsOf;
using tsm::PoolEvent;
using tsm::PoolOptions;
using tsm::StreamPool;
using tsm::Terms;

using Events = std::vector<std::unique_ptr<PoolEvent>>;

template <class Call>
ErrorKind kind_of(const Call& call) {
  try {
    call();
  } catch (const tsm::Error& error) {
    return error.kind;
  }
  return ErrorKind();
}

inline PoolOptions by_hand() {
  PoolOptions options;
  options.own_thread = false;
  return options;
}

inline FeedRequest feed_of(const Input& input, int64_t first, int64_t last, LogitsOf logits,
                           bool scored) {
  FeedRequest asked;
  asked.steps = last - first;
  if (!input.tokens.empty()) asked.tokens = input.tokens.data() + first;
  if (!input.values.empty()) asked.values = input.values.data() + first * input.width;
  if (!input.dt.empty()) asked.dt = input.dt.data() + first;
  asked.logits = logits;
  asked.log_probs = scored;
  return asked;
}

inline GenerateRequest generation_of(int64_t n, uint64_t seed = 0) {
  GenerateRequest asked;
  asked.n = n;
  asked.sampling.seed = seed;
  return asked;
}

inline void run_out(StreamPool& pool) {
  while (pool.step()) {
  }
}

inline Events all_events(StreamPool& pool) { return pool.take(1 << 20, 0); }

inline bool readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

// The only event that can be taken now.
inline std::unique_ptr<PoolEvent> only_event(StreamPool& pool) {
  Events events = all_events(pool);
  CHECK(events.size() == 1);
  return events.empty() ? std::make_unique<PoolEvent>() : std::move(events.front());
}

}  // namespace pools
