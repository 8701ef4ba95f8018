// What a pool of streams is asked for, and what it tells.
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

// Called with a state that has to make room, by the thread whose call needs that room, without a
// lock. What it throws refuses that call, and the stream stays.
using Spill =
    std::function<void(std::string_view key, const std::vector<uint8_t>& blob, int64_t position)>;

struct PoolOptions {
  int64_t max_queue = 4096;      // requests from their acceptance until their end was taken
  int64_t max_streams = 65536;   // kept in memory
  int64_t max_batch = 64;        // requests of one step
  int64_t prefill_steps = 8;     // of one request in one step
  int64_t prefill_budget = 128;  // of all requests in one step that have more than one
  Spill spill;                   // none: see StreamPool
  // For tests: nobody calls step() but the test, and what time it is, in nanoseconds.
  bool own_thread = true;
  std::function<int64_t()> now;
};

// What every request may say.
struct Terms {
  std::string_view user;     // whose; users have equal shares
  int priority = 0;          // of all users' requests
  bool has_timeout = false;  // seconds from now
  double timeout = 0;
  bool save = false;  // the end brings the state
  // Where the stream must stand when the request begins, else it fails: kBadState.
  bool has_expected_position = false;
  int64_t expected_position = 0;
};

enum class LogitsOf { kNone, kLast, kEach };

// As Chunk (engine/device/chunk.h). Everything is copied.
struct FeedRequest {
  Tokens tokens;
  const float* values = nullptr;
  int64_t steps = 0;
  const float* dt = nullptr;
  LogitsOf logits = LogitsOf::kNone;
  bool log_probs = false;
};

// As Generation (engine/model.h), or less: up to the first token of `stop`, which is fed, too.
struct GenerateRequest {
  int64_t n = 0;
  Sampling sampling;
  float dt = 1;
  const int64_t* stop = nullptr;
  int64_t stop_count = 0;
  bool progress = false;  // tokens are reported as they are generated
};

// How a request goes on, or how it ended.
struct PoolEvent {
  uint64_t ticket = 0;
  bool done = false;
  ErrorKind error{};    // 0: none
  std::string message;  // of the error
  int64_t position = 0;
  bool generated = false, scored = false, saved = false;  // which of these are there
  LogitsOf logits_of = LogitsOf::kNone;
  std::vector<int64_t> tokens;  // progress: new ones; done: all
  std::vector<float> logits, log_probs;
  std::vector<uint8_t> blob;
  std::unique_ptr<PoolEvent> next;  // where it was put back
};

struct PoolStats {
  int64_t requests = 0, refused = 0;  // accepted; refused because something was full
  int64_t finished = 0, failed = 0, cancelled = 0, deadline_misses = 0;
  int64_t fed_tokens = 0, generated_tokens = 0;
  int64_t queue = 0, events = 0;                  // now: not taken, and of these waiting to be
  int64_t streams = 0, spilled = 0, dropped = 0;  // now in memory; gone for others
  int64_t batches = 0;                            // steps of the scheduler
  int64_t batch_sizes[16] = {};                   // of 2^i to 2^(i+1) - 1 requests
};

}  // namespace tsm
