#include "engine/feed.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/error.h"

namespace tsm {
namespace {

constexpr int64_t kStreams = 64;  // at a time
constexpr int64_t kRows = 256;    // of a slice: bounds the workspace
constexpr int64_t kMostSteps = int64_t(1) << 40;
constexpr double kExactTime = 9007199254740992.0;  // 2^53: whole numbers below it are exact
constexpr float kLongestDt = 1e30f;  // ages are sums of dt; this leaves room for them in a float

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

[[noreturn]] void refuse(int64_t chunk, const std::string& what) {
  throw Error((chunk < 0 ? "" : "chunk " + std::to_string(chunk) + ": ") + what);
}

}  // namespace

Hold::~Hold() {
  for (int64_t i = 0; i < count_; ++i)
    chunks_[i].stream->holder_.store(nullptr, std::memory_order_release);
  if (stream_) stream_->holder_.store(nullptr, std::memory_order_release);
}

bool Hold::take(const Stream& stream) const {
  const void* expected = nullptr;
  if (stream.holder_.compare_exchange_strong(expected, holder_, std::memory_order_acquire)) {
    return true;
  }
  if (expected == holder_) return false;
  throw Error("the stream is in use by another call; accepted: one call at a time a stream",
              ErrorKind::kBusy);
}

void Hold::add(const Chunk* chunks, int64_t count) {
  chunks_ = chunks;
  for (; count_ < count; ++count_) {
    if (take(*chunks[count_].stream)) continue;
    refuse(count_, "its stream is there twice; accepted: each once");
  }
}

void Hold::add(const Stream& stream) {
  take(stream);
  stream_ = &stream;
}

void Feed::run(const Chunk* chunks, int64_t count) {
  for (int64_t i = 0; i < count; ++i) check(chunks[i], count > 1 ? i : -1);
  check_outputs(chunks, count);
  Hold hold(&workspace_);
  hold.add(chunks, count);
  run_checked(chunks, count);
}

// Messages are put together only where they are needed: a call that goes well allocates nothing.
void Feed::check(const Chunk& chunk, int64_t number) const {
  const Config& config = parts_.config;
  const int64_t steps = chunk.steps, width = config.input_width;
  if (!chunk.stream) refuse(number, "stream is null");
  if (&chunk.stream->model() != &model_) refuse(number, "the stream belongs to another model");
  if (steps < 0 || steps > kMostSteps) {
    refuse(number, "steps = " + std::to_string(steps) + "; accepted: 0 to 2^40");
  }
  if (chunk.scores && config.family != Family::kLanguageModel) {
    refuse(number, "scores are wanted; accepted: of a language model");
  }
  if (config.input == Config::Input::kValues) {
    if (chunk.tokens || (!chunk.values && steps > 0)) {
      refuse(number, (chunk.tokens ? "tokens were given" : "values are null") +
                         std::string("; accepted by this model: values [steps, ") +
                         std::to_string(width) + "]");
    }
    if (!parts_.level.all_finite(chunk.values, steps * width)) {
      int64_t at = 0;
      while (std::isfinite(chunk.values[at])) ++at;
      refuse(number, "x has " + shown(chunk.values[at]) + " at step " + std::to_string(at / width) +
                         ", column " + std::to_string(at % width) + "; accepted: finite numbers");
    }
  } else {
    if (chunk.values || (!chunk.tokens && steps > 0)) {
      refuse(number, (chunk.values ? "values were given" : "tokens are null") +
                         std::string("; accepted by this model: tokens [steps]"));
    }
    const auto known = [&](int64_t t) {
      return uint64_t(chunk.tokens[t]) < uint64_t(config.vocab_size);
    };
    bool all = true;  // a loop without exits runs in vectors
    for (int64_t t = 0; t < steps; ++t) all &= known(t);
    if (!all) {
      int64_t t = 0;
      while (known(t)) ++t;
      refuse(number, "token " + std::to_string(chunk.tokens[t]) + " at step " + std::to_string(t) +
                         "; accepted: 0 to " + std::to_string(config.vocab_size - 1));
    }
  }
  if (chunk.dt) check_dt(chunk, number);
  if (writes_into_input(chunk, config.output_size, width)) {
    refuse(number, "an output overlaps what is fed; accepted: memory of its own");
  }
}

void Feed::check_dt(const Chunk& chunk, int64_t number) const {
  if (!parts_.takes_dt) {
    std::string cells;
    for (const LayerInfo& layer : parts_.infos) cells += (cells.empty() ? "" : ", ") + layer.cell;
    refuse(number, "dt was given; accepted: none, as the model's cells (" + cells +
                       ") do not all take one");
  }
  // The cell's shortest step may itself have been rounded to a float.
  const double least = parts_.shortest_dt * (1 - 1e-6);
  for (int64_t t = 0; t < chunk.steps; ++t) {
    const float dt = chunk.dt[t];
    if (dt > 0 && dt <= kLongestDt && dt >= least) continue;
    refuse(number, "dt is " + shown(dt) + " at step " + std::to_string(t) +
                       "; accepted: finite numbers above 0, from " + shown(parts_.shortest_dt) +
                       " to 1e30");
  }
}

void Feed::check_outputs(const Chunk* chunks, int64_t count) const {
  workspace_.spans.reserve(2 * count);
  const Overlap found =
      find_overlap(chunks, count, parts_.config.output_size, workspace_.spans.data());
  if (found.first < 0) return;
  const std::string which = found.first == found.second ? "logits and log_probs overlap"
                                                        : "its outputs overlap those of chunk " +
                                                              std::to_string(found.first);
  refuse(count > 1 ? found.second : -1, which + "; accepted: memory of its own for each");
}

// Everything that the call may need, so that nothing can fail once a state has changed.
void Feed::reserve() {
  int64_t longest = 0, total = 0;
  bool staged = count_ > 1, scores = false;
  for (int64_t i = 0; i < count_; ++i) {
    longest = std::max(longest, chunks_[i].steps);
    total += std::min(chunks_[i].steps, kRows);
    scores = scores || chunks_[i].scores;
  }
  const int64_t streams = std::min(count_, kStreams);
  const int64_t rows = std::min(total, kRows);
  const int64_t steps = std::min(longest, kRows);
  workspace_.backup.reserve(count_ * parts_.states.floats);
  workspace_.memory.reserve(streams);
  workspace_.active.reserve(steps);
  workspace_.first.reserve(steps + 1);
  workspace_.dt.reserve(rows);
  const Config& config = parts_.config;
  if (config.input == Config::Input::kOneHot) {
    workspace_.tokens.reserve(rows);
  } else {
    workspace_.x.reserve(rows * parts_.layers[0]->input_bytes());
    workspace_.rows.reserve(config.input_width);
  }
  for (const auto& layer : parts_.layers) layer->reserve(workspace_, streams, rows);
  const int64_t wanted = streams + (scores ? 2 : 1) * rows;
  workspace_.wanted.reserve(wanted);
  parts_.head->reserve(workspace_, wanted, staged || scores);
}

// Longest chunks first: at every step the streams that go on are the first ones.
void Feed::sort() {
  int64_t* order = workspace_.order.data();
  for (int64_t i = 0; i < count_; ++i) order[i] = i;
  const auto before = [this](int64_t a, int64_t b) {
    return chunks_[a].steps != chunks_[b].steps ? chunks_[a].steps > chunks_[b].steps : a < b;
  };
  // Mostly all are of one length: looking costs less than sorting.
  if (!std::is_sorted(order, order + count_, before)) std::sort(order, order + count_, before);
}

void Feed::run_checked(const Chunk* chunks, int64_t count) {
  chunks_ = chunks;
  count_ = count;
  if (count == 0) return;
  workspace_.order.reserve(count_);
  sort();
  const NotFinite bad = parts_.device ? run_on_device() : run_here();
  if (bad.layer >= 0) {
    const LayerInfo& layer = parts_.infos[size_t(bad.layer)];
    throw Error("layer " + std::to_string(bad.layer) + " (" + layer.cell + "): state " +
                    layer.states[size_t(bad.state)].name +
                    " is no longer finite; all streams of the call are as before it",
                ErrorKind::kBadState);
  }
  for (int64_t i = 0; i < count; ++i) {
    Stream& stream = *chunks[i].stream;
    stream.position_ += chunks[i].steps;
    const int64_t steps = chunks[i].steps;
    if (chunks[i].dt) {
      for (int64_t t = 0; t < steps; ++t) stream.time_ += double(chunks[i].dt[t]);
    } else if (const double sum = stream.time_ + double(steps);
               stream.time_ == std::trunc(stream.time_) && sum < kExactTime) {
      stream.time_ = sum;  // the same bits as one by one
    } else {
      for (int64_t t = 0; t < steps; ++t) stream.time_ += 1;
    }
  }
}

NotFinite Feed::run_on_device() {
  workspace_.slots.reserve(count_);
  Slot** const slots = workspace_.slots.data();
  for (int64_t i = 0; i < count_; ++i) slots[i] = &chunks_[i].stream->slot_;
  const NotFinite bad = parts_.device->feed(chunks_, workspace_.order.data(), slots, count_);
  for (int64_t i = 0; bad.layer < 0 && i < count_; ++i) {
    if (chunks_[i].steps > 0) slots[i]->current = 1 - slots[i]->current;
  }
  return bad;
}

NotFinite Feed::run_here() {
  reserve();
  const int64_t floats = parts_.states.floats;
  float* backup = workspace_.backup.data();
  for (int64_t i = 0; i < count_; ++i) {
    std::memcpy(backup + i * floats, chunks_[i].stream->memory_.data(), size_t(floats) * 4);
  }
  for (int64_t first = 0; first < count_; first += kStreams) {
    if (group(first, std::min(kStreams, count_ - first))) continue;
    for (int64_t i = 0; i < count_; ++i) {
      std::memcpy(chunks_[i].stream->memory_.data(), backup + i * floats, size_t(floats) * 4);
    }
    return bad_;
  }
  return {};
}

bool Feed::group(int64_t first, int64_t count) {
  const int64_t* order = workspace_.order.data() + first;
  const int64_t longest = chunks_[order[0]].steps;
  int64_t done = 0, streams = count;
  do {
    const int64_t steps = std::min(longest - done, std::max<int64_t>(1, kRows / streams));
    if (!slice(order, streams, done, steps)) return false;
    done += steps;
    while (streams > 0 && chunks_[order[streams - 1]].steps <= done) --streams;
  } while (streams > 0);
  return true;
}

bool Feed::slice(const int64_t* order, int64_t streams, int64_t done, int64_t steps) {
  int64_t* active = workspace_.active.data();
  int64_t* first = workspace_.first.data();
  float** memory = workspace_.memory.data();
  for (int64_t i = 0; i < streams; ++i) memory[i] = chunks_[order[i]].stream->memory_.data();
  first[0] = 0;
  for (int64_t t = 0, n = streams; t < steps; ++t) {
    while (n > 0 && chunks_[order[n - 1]].steps <= done + t) --n;
    active[t] = n;
    first[t + 1] = first[t] + n;
  }
  Slice slice{streams, steps, active, first, memory, nullptr, nullptr, nullptr, nullptr};
  read_inputs(order, slice, done);
  int turn = 0;
  for (size_t l = 0; l < parts_.layers.size(); ++l) {
    const Layer& layer = *parts_.layers[l];
    slice.y = workspace_.y[turn].data();
    const int bad = layer.run(slice, parts_.pool, workspace_);
    if (bad >= 0) {
      bad_ = {int64_t(l), bad};
      return false;
    }
    slice.x = slice.y + streams * layer.encoded_bytes();
    slice.tokens = nullptr;
    turn = 1 - turn;
  }
  workspace_.slices += 1;
  workspace_.steps += steps;
  outputs(order, slice, done);
  return true;
}

void Feed::read_inputs(const int64_t* order, Slice& slice, int64_t done) {
  const Config& config = parts_.config;
  const Layer& layer = *parts_.layers[0];
  float* dt = workspace_.dt.data();
  uint8_t* x = workspace_.x.data();
  int64_t* tokens = workspace_.tokens.data();
  float* scratch = workspace_.rows.data();
  const bool one_hot = config.input == Config::Input::kOneHot;
  // Of a single stream, rows that need no encoding stay where they are.
  const float* const as_is =
      slice.streams == 1 && config.input == Config::Input::kValues && layer.reads_floats()
          ? chunks_[order[0]].values + done * config.input_width
          : nullptr;
  for (int64_t t = 0; t < slice.steps; ++t) {
    for (int64_t i = 0; i < slice.active[t]; ++i) {
      const Chunk& chunk = chunks_[order[i]];
      const int64_t row = slice.first[t] + i, step = done + t;
      dt[row] = chunk.dt ? chunk.dt[step] : 1.0f;
      if (one_hot) tokens[row] = chunk.tokens[step];
      if (one_hot || as_is) continue;
      const float* from = config.input == Config::Input::kTokens
                              ? parts_.embedding.row(chunk.tokens[step], scratch)
                              : chunk.values + step * config.input_width;
      layer.encode_input(from, x + row * layer.input_bytes());
    }
  }
  slice.dt = dt;
  slice.tokens = one_hot ? tokens : nullptr;
  if (!one_hot) slice.x = as_is ? reinterpret_cast<const uint8_t*>(as_is) : x;
}

void Feed::outputs(const int64_t* order, const Slice& slice, int64_t done) {
  Wanted* wanted = workspace_.wanted.data();
  const int64_t width = parts_.head->outputs();
  int64_t count = 0;
  // Of the states before the slice: the last step of a chunk of none, and the first scores.
  for (int64_t i = 0; i < slice.streams; ++i) {
    const Chunk& chunk = chunks_[order[i]];
    if (chunk.logits && chunk.last_only && chunk.steps == 0) {
      wanted[count++] = {slice.output(-1, i), -1, chunk.logits};
    }
  }
  for (int64_t t = 0; t < slice.steps; ++t) {
    for (int64_t i = 0; i < slice.active[t]; ++i) {
      const Chunk& chunk = chunks_[order[i]];
      const int64_t step = done + t;
      if (chunk.scores) {
        wanted[count++] = {slice.output(t - 1, i), chunk.tokens[step], chunk.scores + step};
      }
      if (chunk.logits && (!chunk.last_only || step == chunk.steps - 1)) {
        float* out = chunk.last_only ? chunk.logits : chunk.logits + step * width;
        wanted[count++] = {slice.output(t, i), -1, out};
      }
    }
  }
  parts_.head->run(slice.y, wanted, count, parts_.pool, workspace_);
}

}  // namespace tsm
