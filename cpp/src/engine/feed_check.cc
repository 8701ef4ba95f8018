// The checks of a call before the first stream advances: streams, inputs and outputs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
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
  const Error error(what, kind);
  throw chunk < 0 ? error : numbered("chunks", chunk, error);
}

Hold::~Hold() {
  release_first(count_);
  if (stream_) release(*stream_);
}

void Hold::refuse_held(const void* holder, int64_t number) const {
  if (holder == holder_) refuse(number, "its stream occurs twice; accepted: each stream once");
  refuse(number, "the stream is in use by another call; accepted: one call at a time per stream",
         ErrorKind::kBusy);
}

void Hold::add(const Stream& stream) {
  take(stream, -1);
  stream_ = &stream;
}

void Feed::check(const Chunk& chunk, int64_t number) const {
  const Problem problem = problem_of(chunk);
  if (problem != Problem::kNone) refuse_chunk(problem, chunk, number);
}

// Short, because calls with many streams spend much of their time here: `refuse_chunk` builds the
// messages. A successful call allocates nothing.
inline Feed::Problem Feed::problem_of(const Chunk& chunk) const {
  const Config& config = impl_.config;
  const int64_t steps = chunk.steps;
  if (!chunk.stream) return Problem::kNoStream;
  if (&chunk.stream->model() != &model_) return Problem::kOtherModel;
  // The usual chunk of a call with many streams, in few instructions: one token, and logits.
  if (steps == 1 && chunk.tokens && !chunk.values && !chunk.dt && !chunk.scores &&
      config.input != Config::Input::kValues &&
      uint64_t(chunk.tokens[0]) < uint64_t(config.vocab_size) &&
      !Bytes(chunk.logits, chunk.logits ? config.output_size : 0)
           .meets({static_cast<const char*>(chunk.tokens.data()), 8}))
    return Problem::kNone;
  if (steps < 0 || steps > kMostSteps) return Problem::kSteps;
  if (chunk.scores && config.family != Family::kLanguageModel) return Problem::kScores;
  if (config.input == Config::Input::kValues) {
    if (chunk.tokens || (!chunk.values && steps > 0)) return Problem::kInputKind;
    if (!impl_.isa.all_finite(chunk.values, steps * config.input_width)) return Problem::kValue;
  } else {
    if (chunk.values || (!chunk.tokens && steps > 0)) return Problem::kInputKind;
    if (!chunk.tokens.all_below(config.vocab_size, steps)) return Problem::kToken;
  }
  if (chunk.dt) {
    if (!impl_.takes_dt) return Problem::kNoDt;
    for (int64_t t = 0; t < steps; ++t)
      if (!is_time_step(chunk.dt[t], impl_.shortest_dt)) return Problem::kDt;
  }
  if (writes_into_input(chunk, config.output_size, config.input_width)) return Problem::kOverlap;
  return Problem::kNone;
}

bool Feed::take_all(const Chunk* chunks, int64_t* order, int64_t count, const Hold& hold) const {
  Slot** const slots = workspace_.slots.data();
  OutputOrder outputs(impl_.config.output_size);
  int64_t shortest = kMostSteps;
  bool sorted = true;
  for (int64_t i = 0; i < count; ++i) {
    const Chunk& chunk = chunks[i];
    if (problem_of(chunk) != Problem::kNone || !hold.took(*chunk.stream)) {
      hold.release_first(i);
      return false;
    }
    outputs.add(chunk);
    sorted &= chunk.steps <= shortest;
    shortest = chunk.steps;
    order[i] = i;
    slots[i] = &chunk.stream->slot_;
  }
  if (!outputs && overlap(chunks, order, count).first >= 0) {
    hold.release_first(count);
    return false;
  }
  if (!sorted) sort(chunks, order, count);
  return true;
}

int64_t Feed::take_good(const Chunk* chunks, int64_t* order, int64_t count, const Call& call,
                        const Hold& hold) const {
  const auto number = [&](int64_t i) { return call.alone ? -1 : i; };
  int64_t checked = 0, held = 0;
  for (int64_t i = 0; i < count; ++i)
    if (accepted(call, i, [&] { check(chunks[i], number(i)); })) order[checked++] = i;
  checked = check_outputs(chunks, order, checked, call);
  for (int64_t k = 0; k < checked; ++k) {
    const int64_t i = order[k];
    if (accepted(call, i, [&] { hold.take(*chunks[i].stream, number(i)); })) order[held++] = i;
  }
  sort(chunks, order, held);
  return held;
}

// Longest first, so that at every step the active streams are the first ones.
void Feed::sort(const Chunk* chunks, int64_t* order, int64_t count) const {
  std::sort(order, order + count, [chunks](int64_t a, int64_t b) {
    return chunks[a].steps != chunks[b].steps ? chunks[a].steps > chunks[b].steps : a < b;
  });
  list_slots(chunks, order, count);
}

Overlap Feed::overlap(const Chunk* chunks, const int64_t* order, int64_t count) const {
  workspace_.spans.reserve(2 * count);
  return find_overlap(chunks, order, count, impl_.config.output_size, workspace_.spans.data());
}

// The search for a bad number stops at the last one even if it has found none: another thread may
// have changed the bad one meanwhile.
void Feed::refuse_chunk(Problem problem, const Chunk& chunk, int64_t number) const {
  const Config& config = impl_.config;
  const int64_t steps = chunk.steps, width = config.input_width;
  const bool values_in = config.input == Config::Input::kValues;
  const auto first_bad = [](int64_t count, const auto& good) {
    int64_t at = 0;
    while (at < count - 1 && good(at)) ++at;
    return at;
  };
  switch (problem) {
    case Problem::kNoStream:
      refuse(number, "stream is null");
    case Problem::kOtherModel:
      refuse(number, "the stream belongs to another model");
    case Problem::kSteps:
      refuse(number, "steps = " + std::to_string(steps) + "; accepted: 0 to 2^40");
    case Problem::kScores:
      refuse(number, "scores are wanted; accepted: of a language model");
    case Problem::kInputKind:
      if (values_in)
        refuse(number, (chunk.tokens ? "tokens were given" : "values are null") +
                           std::string("; accepted by this model: values [steps, ") +
                           std::to_string(width) + "]");
      refuse(number, (chunk.values ? "values were given" : "tokens are null") +
                         std::string("; accepted by this model: tokens [steps]"));
    case Problem::kValue: {
      const int64_t at =
          first_bad(steps * width, [&](int64_t i) { return std::isfinite(chunk.values[i]); });
      refuse(number, "x has " + shown(chunk.values[at]) + " at step " + std::to_string(at / width) +
                         ", column " + std::to_string(at % width) + "; accepted: finite numbers");
    }
    case Problem::kToken: {
      const int64_t t = first_bad(steps, [&](int64_t i) {
        return uint64_t(chunk.tokens[i]) < uint64_t(config.vocab_size);
      });
      refuse(number, "token " + std::to_string(chunk.tokens[t]) + " at step " + std::to_string(t) +
                         "; accepted: 0 to " + std::to_string(config.vocab_size - 1));
    }
    case Problem::kNoDt: {
      std::string cells;
      for (const LayerInfo& layer : impl_.infos) cells += (cells.empty() ? "" : ", ") + layer.cell;
      refuse(number, "dt was given; accepted: none, as the model's cells (" + cells +
                         ") do not all take one");
    }
    case Problem::kDt: {
      const int64_t t =
          first_bad(steps, [&](int64_t i) { return is_time_step(chunk.dt[i], impl_.shortest_dt); });
      refuse(number, "dt is " + shown(chunk.dt[t]) + " at step " + std::to_string(t) +
                         "; accepted: finite numbers above 0, from " + shown(impl_.shortest_dt) +
                         " to 1e30");
    }
    case Problem::kOverlap:
      refuse(number, "an output overlaps what is fed; accepted: memory of its own");
    case Problem::kNone:
      break;
  }
  throw std::logic_error("refuse_chunk: nothing is wrong");
}

int64_t Feed::check_outputs(const Chunk* chunks, int64_t* order, int64_t count,
                            const Call& call) const {
  for (;;) {
    const Overlap found = overlap(chunks, order, count);
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
