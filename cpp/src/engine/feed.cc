#include "engine/feed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "core/error.h"

namespace tsm {
namespace {

constexpr int64_t kStreams = 64;                   // at a time
constexpr int64_t kRows = 256;                     // of a slice: bounds the workspace
constexpr double kExactTime = 9007199254740992.0;  // 2^53: integers below it are exact

}  // namespace

void Feed::run(const Chunk* chunks, int64_t count, const Call& call) {
  workspace_.order.reserve(count);
  int64_t* const order = workspace_.order.data();
  const auto number = [&](int64_t i) { return call.alone ? -1 : i; };
  const auto keep = [&](int64_t from, const auto& check) {  // those that it accepts
    int64_t kept = 0;
    for (int64_t k = 0; k < from; ++k) {
      const int64_t i = order[k];
      if (accepted(call, i, [&] { check(i); })) order[kept++] = i;
    }
    return kept;
  };
  for (int64_t i = 0; i < count; ++i) order[i] = i;
  int64_t left = keep(count, [&](int64_t i) { check(chunks[i], number(i)); });
  left = check_outputs(chunks, order, left, call);
  const Hold hold(&workspace_, chunks, count);
  left = keep(left, [&](int64_t i) { hold.take(*chunks[i].stream, number(i)); });
  while (!advance(chunks, order, left, call)) {
    for (const NotFinite& bad : workspace_.broken) {
      accepted(call, bad.chunk, [&] { refuse_broken(bad, number(bad.chunk)); });
      left = std::remove(order, order + left, bad.chunk) - order;
    }
  }
}

bool Feed::advance(const Chunk* chunks, int64_t* order, int64_t count, const Call& call) {
  if (count == 0) return true;
  chunks_ = chunks;
  call_ = call;
  sort(order, count);
  const NotFinite bad = compute(order, count);
  if (bad.layer < 0) {
    move_on();
    return true;
  }
  workspace_.broken.clear();
  find_broken(order, count, bad);
  return false;
}

// Longest chunks first: at every step the streams that go on are the first ones.
void Feed::sort(int64_t* order, int64_t count) const {
  const auto before = [this](int64_t a, int64_t b) {
    return chunks_[a].steps != chunks_[b].steps ? chunks_[a].steps > chunks_[b].steps : a < b;
  };
  // Mostly all are of one length: looking costs less than sorting.
  if (!std::is_sorted(order, order + count, before)) std::sort(order, order + count, before);
}

// Those that fail alone, too, among some that failed together.
void Feed::find_broken(const int64_t* order, int64_t count, const NotFinite& bad) {
  if (count == 1) {
    workspace_.broken.push_back({bad.layer, bad.state, order[0]});
    return;
  }
  const int64_t half = count / 2;
  for (const auto& [first, size] :
       {std::pair{order, half}, std::pair{order + half, count - half}}) {
    const NotFinite found = compute(first, size);
    if (found.layer >= 0) {
      find_broken(first, size, found);
    } else if (!impl_.device) {
      put_back();
    }
    if (!call_.failures && !workspace_.broken.empty()) return;  // one is enough to refuse the call
  }
}

// On failure no stream has moved; else its new states are in its memory, or on the other side of
// its slot.
NotFinite Feed::compute(const int64_t* order, int64_t count) {
  order_ = order;
  count_ = count;
  return impl_.device ? run_on_device() : run_here();
}

NotFinite Feed::run_on_device() {
  workspace_.slots.reserve(count_);
  Slot** const slots = workspace_.slots.data();
  for (int64_t i = 0; i < count_; ++i) slots[i] = &chunks_[order_[i]].stream->slot_;
  return impl_.device->feed(chunks_, order_, slots, count_, call_.cancel);
}

NotFinite Feed::run_here() {
  reserve();
  const int64_t floats = impl_.states.floats;
  for (int64_t i = 0; i < count_; ++i) {
    std::memcpy(workspace_.backup.data() + i * floats, chunks_[order_[i]].stream->memory_.data(),
                size_t(floats) * 4);
  }
  try {
    for (int64_t first = 0; first < count_; first += kStreams) {
      if (group(first, std::min(kStreams, count_ - first))) continue;
      put_back();
      return bad_;
    }
  } catch (...) {
    put_back();
    throw;
  }
  return {};
}

void Feed::put_back() {
  const int64_t floats = impl_.states.floats;
  for (int64_t i = 0; i < count_; ++i) {
    std::memcpy(chunks_[order_[i]].stream->memory_.data(), workspace_.backup.data() + i * floats,
                size_t(floats) * 4);
  }
}

void Feed::move_on() {
  for (int64_t i = 0; i < count_; ++i) {
    const Chunk& chunk = chunks_[order_[i]];
    Stream& stream = *chunk.stream;
    const int64_t steps = chunk.steps;
    if (impl_.device && steps > 0) stream.slot_.current = 1 - stream.slot_.current;
    stream.position_ += steps;
    if (const double sum = stream.time_ + double(steps);
        !chunk.dt && stream.time_ == std::trunc(stream.time_) && sum < kExactTime) {
      stream.time_ = sum;  // the same bits as one by one
    } else {
      for (int64_t t = 0; t < steps; ++t) stream.time_ += double(dt_of(chunk, t));
    }
  }
}

// Everything that the call may need, so that nothing can fail once a state has changed.
void Feed::reserve() {
  int64_t longest = 0, total = 0;
  bool staged = count_ > 1, scores = false;
  for (int64_t i = 0; i < count_; ++i) {
    const Chunk& chunk = chunks_[order_[i]];
    longest = std::max(longest, chunk.steps);
    total += std::min(chunk.steps, kRows);
    scores = scores || chunk.scores;
  }
  const int64_t streams = std::min(count_, kStreams);
  const int64_t rows = std::min(total, kRows);
  const int64_t steps = std::min(longest, kRows);
  workspace_.backup.reserve(count_ * impl_.states.floats);
  workspace_.memory.reserve(streams);
  workspace_.active.reserve(steps);
  workspace_.first.reserve(steps + 1);
  workspace_.dt.reserve(rows);
  const Config& config = impl_.config;
  if (config.input != Config::Input::kValues) workspace_.tokens.reserve(rows);
  if (config.input != Config::Input::kOneHot) {
    workspace_.x.reserve(rows * impl_.layers[0]->input_bytes());
    workspace_.rows.reserve(config.input_width);
  }
  for (const auto& layer : impl_.layers) layer->reserve(workspace_, streams, rows);
  const int64_t wanted = streams + (scores ? 2 : 1) * rows;
  workspace_.wanted.reserve(wanted);
  impl_.head->reserve(workspace_, wanted, staged || scores);
}

bool Feed::group(int64_t first, int64_t count) {
  const int64_t* order = order_ + first;
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
  end_if_cancelled(call_.cancel);
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
  for (size_t l = 0; l < impl_.layers.size(); ++l) {
    const CpuLayer& layer = *impl_.layers[l];
    slice.y = workspace_.y[turn].data();
    const int bad = layer.run(slice, impl_.pool, workspace_);
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
  const Config& config = impl_.config;
  const CpuLayer& layer = *impl_.layers[0];
  float* dt = workspace_.dt.data();
  uint8_t* x = workspace_.x.data();
  int64_t* tokens = workspace_.tokens.data();
  float* scratch = workspace_.rows.data();
  const bool one_hot = config.input == Config::Input::kOneHot;
  const bool takes_tokens = config.input != Config::Input::kValues;
  // Of a single stream, rows that need no encoding stay where they are.
  const float* const as_is =
      slice.streams == 1 && config.input == Config::Input::kValues && layer.reads_floats()
          ? chunks_[order[0]].values + done * config.input_width
          : nullptr;
  for (int64_t t = 0; t < slice.steps; ++t) {
    for (int64_t i = 0; i < slice.active[t]; ++i) {
      const Chunk& chunk = chunks_[order[i]];
      const int64_t row = slice.first[t] + i, step = done + t;
      dt[row] = dt_of(chunk, step);
      if (takes_tokens) tokens[row] = chunk.tokens.below(config.vocab_size, step);
      if (one_hot || as_is) continue;
      const float* from = takes_tokens ? impl_.embedding.row(tokens[row], scratch)
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
  const int64_t width = impl_.head->outputs();
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
        const int64_t token = workspace_.tokens.data()[slice.first[t] + i];
        wanted[count++] = {slice.output(t - 1, i), token, chunk.scores + step};
      }
      if (chunk.logits && (!chunk.last_only || step == chunk.steps - 1)) {
        float* out = chunk.last_only ? chunk.logits : chunk.logits + step * width;
        wanted[count++] = {slice.output(t, i), -1, out};
      }
    }
  }
  impl_.head->run(slice.y, wanted, count, impl_.pool, workspace_);
}

}  // namespace tsm
