#include "engine/pool/fill.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/pool/turns.h"
#include "engine/sampling.h"

namespace tsm {
namespace {

constexpr int64_t kMostFloats = int64_t(1) << 40;  // of logits
constexpr int64_t kAtOnce = 1 << 16;  // tokens that a generation reserves room for at first

}  // namespace

// Messages are built only on errors.
void check_name(const char* name, std::string_view value) {
  if (!value.empty() && int64_t(value.size()) <= kLongestKey) return;
  throw Error(std::string(name) + " has " + std::to_string(value.size()) +
              " bytes; accepted: 1 to " + std::to_string(kLongestKey));
}

void Fill::check(const Terms& terms) const {
  if (!terms.user.empty()) check_name("user", terms.user);
  if (terms.priority < 0 || terms.priority >= kPriorities) {
    throw Error("priority = " + std::to_string(terms.priority) + "; accepted: 0 to " +
                std::to_string(kPriorities - 1));
  }
  if (terms.has_expected_position && terms.expected_position < 0) {
    throw Error("expected_position = " + std::to_string(terms.expected_position) +
                "; accepted: 0 or more");
  }
  if (!terms.has_timeout || terms.timeout > 0) return;
  if (std::isnan(terms.timeout)) throw Error("timeout is NaN; accepted: seconds");
  throw Error("the deadline had passed before the request was made", ErrorKind::kDeadline);
}

void Fill::keep_before(Request& request) const {
  request.goes_back = true;
  if (!request.before) request.before = model_.create_stream();
}

void Fill::fill(Request& request, const FeedRequest& asked, const PoolOptions& options) const {
  const int64_t T = asked.steps, V = model_.output_size();
  Chunk chunk;
  chunk.stream = any_.get();
  chunk.tokens = asked.tokens;
  chunk.values = asked.values;
  chunk.steps = T;
  chunk.dt = asked.dt;
  model_.check(chunk);
  require(!asked.log_probs || model_.family() == Family::kLanguageModel,
          "log_probs needs a language model");
  request.steps = T;
  if (asked.tokens) {
    request.tokens.resize(size_t(T));
    for (int64_t t = 0; t < T; ++t) request.tokens[size_t(t)] = asked.tokens[t];
  }
  if (asked.values) request.values.assign(asked.values, asked.values + T * model_.input_size());
  request.has_dt = asked.dt != nullptr;
  if (asked.dt) request.dt.assign(asked.dt, asked.dt + T);
  if (T > longest_piece(options, options.prefill_budget, options.max_batch))
    keep_before(request);  // it may run in pieces
  PoolEvent& event = *request.event;
  event.logits_of = asked.logits;
  event.scored = asked.log_probs;
  if (asked.log_probs) event.log_probs.resize(size_t(T));
  if (asked.logits == LogitsOf::kNone) return;
  const int64_t rows = asked.logits == LogitsOf::kEach ? T : 1;
  require(rows <= kMostFloats / V, "logits of " + std::to_string(rows) +
                                       " steps; accepted: at most " +
                                       std::to_string(kMostFloats / V));
  event.logits.resize(size_t(rows * V));
}

void Fill::fill(Request& request, const GenerateRequest& asked, const PoolOptions&) const {
  require(model_.family() == Family::kLanguageModel, "generate needs a language model");
  require(asked.n >= 0, "n = " + std::to_string(asked.n) + "; accepted: 0 or more");
  tsm::check(asked.sampling);
  require(asked.stop_count >= 0 && asked.stop_count <= model_.vocab_size(),
          "stop has " + std::to_string(asked.stop_count) + " tokens; accepted: at most " +
              std::to_string(model_.vocab_size()));
  request.tokens.assign(asked.stop, asked.stop + asked.stop_count);
  for (const int64_t token : request.tokens) {
    require(token >= 0 && token < model_.vocab_size(), "stop has " + std::to_string(token) +
                                                           "; accepted: tokens, 0 to " +
                                                           std::to_string(model_.vocab_size() - 1));
  }
  const int64_t token = 0;
  Chunk chunk;
  chunk.stream = any_.get();
  chunk.tokens = &token;
  chunk.steps = 1;
  if (asked.dt != 1) chunk.dt = &asked.dt;
  model_.check(chunk);
  request.generates = true;
  request.progress = asked.progress;
  request.steps = asked.n;
  request.sampling = asked.sampling;
  request.has_dt = asked.dt != 1;
  request.dt.assign(1, asked.dt);
  request.row.resize(size_t(model_.output_size()));
  if (!asked.progress && asked.n > 0) keep_before(request);
  request.event->generated = true;
  request.event->tokens.reserve(size_t(std::clamp<int64_t>(asked.n, 1, kAtOnce)));
}

}  // namespace tsm
