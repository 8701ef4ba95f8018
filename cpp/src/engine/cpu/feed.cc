#include "engine/cpu/feed.h"

#include <algorithm>
#include <cstring>

namespace tsm {
namespace {

constexpr int64_t kRows = 256;  // of a slice: bounds the workspace

}  // namespace

NotFinite CpuFeed::run(bool keep) {
  reserve();
  const int64_t floats = device_.floats_;
  for (int64_t i = 0; i < count_; ++i) {
    std::memcpy(workspace_.backup.data() + i * floats, slots_[i]->memory, size_t(floats) * 4);
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
  if (!keep) put_back();
  return {};
}

void CpuFeed::put_back() {
  const int64_t floats = device_.floats_;
  for (int64_t i = 0; i < count_; ++i) {
    std::memcpy(slots_[i]->memory, workspace_.backup.data() + i * floats, size_t(floats) * 4);
  }
}

// Reserves all memory that the call may need, so that nothing can fail once a state has changed.
void CpuFeed::reserve() {
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
  workspace_.backup.reserve(count_ * device_.floats_);
  workspace_.memory.reserve(streams);
  workspace_.active.reserve(steps);
  workspace_.first.reserve(steps + 1);
  workspace_.dt.reserve(rows);
  const Config& config = device_.config_;
  if (config.input != Config::Input::kValues) workspace_.tokens.reserve(rows);
  if (config.input != Config::Input::kOneHot) {
    workspace_.x.reserve(rows * device_.layers_[0]->input_bytes());
    workspace_.rows.reserve(config.input_width);
  }
  for (const auto& layer : device_.layers_) layer->reserve(workspace_, streams, rows);
  const int64_t wanted = streams + (scores ? 2 : 1) * rows;
  workspace_.wanted.reserve(wanted);
  device_.head_->reserve(workspace_, wanted, staged || scores);
}

bool CpuFeed::group(int64_t first, int64_t count) {
  first_stream_ = first;
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

bool CpuFeed::slice(const int64_t* order, int64_t streams, int64_t done, int64_t steps) {
  end_if_cancelled(cancel_);
  int64_t* active = workspace_.active.data();
  int64_t* first = workspace_.first.data();
  float** memory = workspace_.memory.data();
  for (int64_t i = 0; i < streams; ++i) memory[i] = slots_[first_stream_ + i]->memory;
  first[0] = 0;
  for (int64_t t = 0, n = streams; t < steps; ++t) {
    while (n > 0 && chunks_[order[n - 1]].steps <= done + t) --n;
    active[t] = n;
    first[t + 1] = first[t] + n;
  }
  Slice slice{streams, steps, active, first, memory, nullptr, nullptr, nullptr, nullptr};
  read_inputs(order, slice, done);
  int turn = 0;
  for (size_t l = 0; l < device_.layers_.size(); ++l) {
    const CpuLayer& layer = *device_.layers_[l];
    slice.y = workspace_.y[turn].data();
    const int bad = layer.run(slice, device_.pool_, workspace_);
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

void CpuFeed::read_inputs(const int64_t* order, Slice& slice, int64_t done) {
  const Config& config = device_.config_;
  const CpuLayer& layer = *device_.layers_[0];
  float* dt = workspace_.dt.data();
  uint8_t* x = workspace_.x.data();
  int64_t* tokens = workspace_.tokens.data();
  float* scratch = workspace_.rows.data();
  const bool one_hot = config.input == Config::Input::kOneHot;
  const bool takes_tokens = config.input != Config::Input::kValues;
  // For a single stream, rows that need no encoding are used in place.
  const float* const as_is =
      slice.streams == 1 && config.input == Config::Input::kValues && layer.reads_floats()
          ? chunks_[order[0]].values + done * config.input_width
          : nullptr;
  for (int64_t t = 0; t < slice.steps; ++t) {
    for (int64_t i = 0; i < slice.active[t]; ++i) {
      const Chunk& chunk = chunks_[order[i]];
      const int64_t row = slice.first[t] + i, step = done + t;
      dt[row] = dt_of(chunk, step, device_.shortest_dt_);
      if (takes_tokens) tokens[row] = chunk.tokens.below(config.vocab_size, step);
      if (one_hot || as_is) continue;
      const float* from = takes_tokens ? device_.embedding_.row(tokens[row], scratch)
                                       : chunk.values + step * config.input_width;
      layer.encode_input(from, x + row * layer.input_bytes());
    }
  }
  slice.dt = dt;
  slice.tokens = one_hot ? tokens : nullptr;
  if (!one_hot) slice.x = as_is ? reinterpret_cast<const uint8_t*>(as_is) : x;
}

void CpuFeed::outputs(const int64_t* order, const Slice& slice, int64_t done) {
  Wanted* wanted = workspace_.wanted.data();
  const int64_t width = device_.head_->outputs();
  int64_t count = 0;
  // Outputs from the states before the slice: the logits of an empty chunk, and the first scores.
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
  device_.head_->run(slice.y, wanted, count, device_.pool_, workspace_);
}

}  // namespace tsm
