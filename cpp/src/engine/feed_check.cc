// The checks of a call before the first stream advances: streams, inputs and outputs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "core/error.h"
#include "engine/feed.h"

namespace tsm {
namespace {

constexpr int64_t kMostSteps = int64_t(1) << 40;

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

void refuse(int64_t chunk, const std::string& what, ErrorKind kind) {
  Error error((chunk < 0 ? "" : "chunks[" + std::to_string(chunk) + "]: ") + what, kind);
  error.chunk = chunk;
  throw error;
}

Hold::~Hold() {
  for (int64_t i = 0; i < count_; ++i) {
    if (chunks_[i].stream) release(*chunks_[i].stream);
  }
  if (stream_) release(*stream_);
}

void Hold::release(const Stream& stream) const {
  if (stream.holder_.load(std::memory_order_relaxed) != holder_) return;
  stream.holder_.store(nullptr, std::memory_order_release);
}

void Hold::take(const Stream& stream, int64_t number) const {
  const void* expected = nullptr;
  if (stream.holder_.compare_exchange_strong(expected, holder_, std::memory_order_acquire)) return;
  if (expected == holder_) refuse(number, "its stream occurs twice; accepted: each stream once");
  refuse(number, "the stream is in use by another call; accepted: one call at a time per stream",
         ErrorKind::kBusy);
}

void Hold::add(const Stream& stream) {
  take(stream, -1);
  stream_ = &stream;
}

// Messages are built only on errors: a successful call allocates nothing.
void Feed::check(const Chunk& chunk, int64_t number) const {
  const Config& config = impl_.config;
  const int64_t steps = chunk.steps;
  if (!chunk.stream) refuse(number, "stream is null");
  if (&chunk.stream->model() != &model_) refuse(number, "the stream belongs to another model");
  if (steps < 0 || steps > kMostSteps) {
    refuse(number, "steps = " + std::to_string(steps) + "; accepted: 0 to 2^40");
  }
  if (chunk.scores && config.family != Family::kLanguageModel) {
    refuse(number, "scores are wanted; accepted: of a language model");
  }
  check_inputs(chunk, number);
  if (chunk.dt) check_dt(chunk, number);
  if (writes_into_input(chunk, config.output_size, config.input_width)) {
    refuse(number, "an output overlaps what is fed; accepted: memory of its own");
  }
}

// The search for a bad value stops at the last value even if it has found none: another thread may
// have changed the bad one meanwhile.
void Feed::check_inputs(const Chunk& chunk, int64_t number) const {
  const Config& config = impl_.config;
  const int64_t steps = chunk.steps, width = config.input_width;
  if (config.input == Config::Input::kValues) {
    if (chunk.tokens || (!chunk.values && steps > 0)) {
      refuse(number, (chunk.tokens ? "tokens were given" : "values are null") +
                         std::string("; accepted by this model: values [steps, ") +
                         std::to_string(width) + "]");
    }
    if (impl_.isa.all_finite(chunk.values, steps * width)) return;
    int64_t at = 0;
    while (at < steps * width - 1 && std::isfinite(chunk.values[at])) ++at;
    refuse(number, "x has " + shown(chunk.values[at]) + " at step " + std::to_string(at / width) +
                       ", column " + std::to_string(at % width) + "; accepted: finite numbers");
  }
  if (chunk.values || (!chunk.tokens && steps > 0)) {
    refuse(number, (chunk.values ? "values were given" : "tokens are null") +
                       std::string("; accepted by this model: tokens [steps]"));
  }
  if (chunk.tokens.all_below(config.vocab_size, steps)) return;
  int64_t t = 0;
  while (t < steps - 1 && uint64_t(chunk.tokens[t]) < uint64_t(config.vocab_size)) ++t;
  refuse(number, "token " + std::to_string(chunk.tokens[t]) + " at step " + std::to_string(t) +
                     "; accepted: 0 to " + std::to_string(config.vocab_size - 1));
}

void Feed::check_dt(const Chunk& chunk, int64_t number) const {
  if (!impl_.takes_dt) {
    std::string cells;
    for (const LayerInfo& layer : impl_.infos) cells += (cells.empty() ? "" : ", ") + layer.cell;
    refuse(number, "dt was given; accepted: none, as the model's cells (" + cells +
                       ") do not all take one");
  }
  for (int64_t t = 0; t < chunk.steps; ++t) {
    const float dt = chunk.dt[t];
    if (is_time_step(dt, impl_.shortest_dt)) continue;
    refuse(number, "dt is " + shown(dt) + " at step " + std::to_string(t) +
                       "; accepted: finite numbers above 0, from " + shown(impl_.shortest_dt) +
                       " to 1e30");
  }
}

// Returns how many chunks are left.
int64_t Feed::check_outputs(const Chunk* chunks, int64_t* order, int64_t count,
                            const Call& call) const {
  workspace_.spans.reserve(2 * count);
  for (;;) {
    const Overlap found =
        find_overlap(chunks, order, count, impl_.config.output_size, workspace_.spans.data());
    if (found.first < 0) return count;
    accepted(call, found.second, [&] {
      const std::string which =
          found.first == found.second
              ? "logits and log_probs overlap"
              : "its outputs overlap those of chunks[" + std::to_string(found.first) + "]";
      refuse(call.alone ? -1 : found.second, which + "; accepted: memory of its own for each");
    });
    count = std::remove(order, order + count, found.second) - order;
  }
}

void Feed::refuse_broken(const NotFinite& bad, int64_t number) const {
  const LayerInfo& layer = impl_.infos[size_t(bad.layer)];
  refuse(number,
         "layer " + std::to_string(bad.layer) + " (" + layer.cell + "): state " +
             layer.states[size_t(bad.state)].name + " is no longer finite; the stream is unchanged",
         ErrorKind::kBadState);
}

}  // namespace tsm
