// The requests to a pool of streams, and its events.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model.h"

namespace tsm {

constexpr int64_t kLongestKey = 256;  // bytes, of a stream's key and of a user's name
constexpr int kPriorities = 4;        // 0 to 3, higher goes first

// Stores the state of a stream that must make room. It runs on the thread whose call needs the
// room, without a lock. If it throws, the stream stays and that call fails.
using Spill =
    std::function<void(std::string_view key, const std::vector<uint8_t>& blob, int64_t position)>;

struct PoolOptions {
  int64_t max_queue = 4096;     // accepted requests whose last event was not yet taken
  int64_t max_streams = 65536;  // kept in memory
  // 0 in any of these three means the default for the model's device (pool.cc)
  int64_t max_batch = 0;       // requests per step
  int64_t prefill_steps = 0;   // per request and step
  int64_t prefill_budget = 0;  // per step, over all requests that feed more than one step
  Spill spill;                 // none: see StreamPool
  // For tests: without own_thread, only step(), wake() and close() run the pool. now: returns the
  // time in nanoseconds.
  bool own_thread = true;
  std::function<int64_t()> now;
};

// Settings that every request may have.
struct Terms {
  std::string_view user;     // who sent the request; users get equal shares
  int priority = 0;          // across all users
  bool has_timeout = false;  // seconds from now
  double timeout = 0;
  bool save = false;  // the last event carries the state
  bool wake = true;   // false: the scheduler, if it sleeps, begins at the next wake()
  // The position that the stream must have when the request begins; otherwise the request fails
  // with kBadState.
  bool has_expected_position = false;
  int64_t expected_position = 0;
};

enum class LogitsOf { kNone, kLast, kEach };

// Like Chunk (engine/device/chunk.h). Everything is copied.
struct FeedRequest {
  Tokens tokens;
  const float* values = nullptr;
  int64_t steps = 0;
  const float* dt = nullptr;
  LogitsOf logits = LogitsOf::kNone;
  bool log_probs = false;
};

// Like Generation (engine/model.h), but it ends at the first token that is in `stop`; that token is
// fed as well.
struct GenerateRequest {
  int64_t n = 0;
  Sampling sampling;
  float dt = 1;
  const int64_t* stop = nullptr;
  int64_t stop_count = 0;
  bool progress = false;  // tokens are reported as they are generated
};

// The progress of a request, or how it ended.
struct PoolEvent {
  uint64_t ticket = 0;
  bool done = false;
  ErrorKind error{};    // 0: none
  std::string message;  // of the error
  int64_t position = 0;
  bool generated = false, scored = false, saved = false;  // which of these are set
  LogitsOf logits_of = LogitsOf::kNone;
  std::vector<int64_t> tokens;  // progress: new ones; done: all
  std::vector<float> logits, log_probs;
  std::vector<uint8_t> blob;
  std::unique_ptr<PoolEvent> next;  // the list of events put back
};

struct PoolStats {
  int64_t requests = 0, refused = 0;  // accepted; refused because something was full
  int64_t finished = 0, failed = 0, cancelled = 0, deadline_misses = 0;
  int64_t fed_tokens = 0, generated_tokens = 0;
  int64_t queue = 0, events = 0;  // now: untaken requests, and those with an event waiting
  int64_t streams = 0, spilled = 0, dropped = 0;  // now in memory; removed for others
  int64_t batches = 0;                            // steps of the scheduler
  int64_t batch_sizes[16] = {};                   // steps with 2^i to 2^(i+1) - 1 requests
};

}  // namespace tsm
