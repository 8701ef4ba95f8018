#include "engine/cuda/feed.h"

#include <algorithm>
#include <cstring>

namespace tsm::cuda {
namespace {

constexpr int64_t kStreams = 4096;                 // at a time
constexpr int64_t kMostBlockedRows = 32768;        // of a slice
constexpr int64_t kMostRows = 16384;               // if z is stored for all of them,
constexpr int64_t kMostFloats = int64_t(1) << 26;  // and of its z
constexpr int64_t kBand = 16;                      // streams whose tokens fill one cache line

// Makes room for `count` more numbers at the end.
int32_t* appended(std::vector<int32_t>& to, int64_t count) {
  to.resize(to.size() + size_t(count));
  return to.data() + to.size() - count;
}

}  // namespace

NotFinite CudaFeed::run() {
  const auto layers = int64_t(device_.layers_.size());
  workspace_.bad.reserve(layers);
  std::fill_n(workspace_.bad.data(), layers, -1);
  for (; first_ < count_; first_ += kStreams) {
    if (!group(std::min(kStreams, count_ - first_))) break;
  }
  return failure();
}

// Whether a slice of that many streams uses kernels/cuda/stream/many_streams_sm90.h.
bool CudaFeed::blocked(int64_t streams) const {
  const auto runs = [](const CudaLayer& layer) { return layer.runs_blocked(); };
  return streams > kFewStreams && std::all_of(device_.layers_.begin(), device_.layers_.end(), runs);
}

int64_t CudaFeed::most_rows(int64_t streams) const {
  if (blocked(streams)) return kMostBlockedRows;
  int64_t widest = 1;
  for (const CudaLayer& layer : device_.layers_) widest = std::max(widest, layer.z_width());
  return std::min(kMostRows, std::max<int64_t>(1, kMostFloats / widest));
}

bool CudaFeed::group(int64_t streams) {
  const int64_t longest = chunk(0).steps;
  int64_t done = 0;
  do {
    const int64_t rows = most_rows(streams);
    const int64_t steps = std::min(longest - done, std::max<int64_t>(1, rows / streams));
    end_if_cancelled(cancel_);
    if (!slice({streams, done, steps})) return false;
    done += steps;
    if (done == longest) break;  // usually all streams end together
    while (chunk(streams - 1).steps <= done) --streams;
  } while (streams > 0);
  return true;
}

bool CudaFeed::slice(const Part& part) {
  Sent sent = pack(part);
  const CudaHead& head = *device_.head_;
  const int64_t stride = device_.layers_.back().stride();
  if (recordable(part, sent)) {
    const Outputs& wanted = sent.scores.count > 0 ? sent.scores : sent.logits;
    workspace_.graphs.run(key(part, sent), workspace_.queue, [&] {
      const void* y = enqueue(part, sent);
      if (wanted.count > 0) head.enqueue(y, stride, wanted, 0, wanted.count, workspace_);
    });
    workspace_.queue.wait();
    head.deliver(wanted, 0, wanted.count, workspace_);
  } else {
    const void* y = enqueue(part, sent);
    head.run(y, stride, sent.logits, workspace_);
    head.run(y, stride, sent.scores, workspace_);
    // If there are outputs, the head has already waited for the device.
    if (sent.logits.count + sent.scores.count == 0) workspace_.queue.wait();
  }
  return failure().layer < 0;
}

// Only calls with one step per stream and one copy of results are recorded as graphs, as in
// token-by-token generation.
bool CudaFeed::recordable(const Part& part, const Sent& sent) const {
  const int64_t logits = sent.logits.count, scores = sent.scores.count;
  return part.steps == 1 && sent.slice.count() == part.streams && (logits == 0 || scores == 0) &&
         logits + scores <= device_.head_->block();
}

Graphs::Key CudaFeed::key(const Part& part, const Sent& sent) const {
  const CudaWorkspace& w = workspace_;
  const auto at = [](const auto* pointer) {
    return uint64_t(reinterpret_cast<uintptr_t>(pointer));
  };
  return {uint64_t(part.streams),
          uint64_t(sent.logits.count),
          uint64_t(sent.scores.count),
          uint64_t(sent.before),
          uint64_t(sent.slice.rows.dt != nullptr),
          at(sent.slice.rows.active),  // the staging buffer on the device
          at(sent.slice.active),       // the one on the host
          at(w.x.data()),
          at(w.y[0].data()),
          at(w.y[1].data()),
          at(w.blocked_x.data()),
          at(w.blocked_h[0].data()),
          at(w.blocked_h[1].data()),
          at(w.z.data()),
          at(w.logits.data()),
          at(w.scores.data()),
          at(w.results.data()),
          at(w.exchange.data()),
          at(w.bad.data())};
}

// Enqueues all layers; returns the output rows of the last one.
const void* CudaFeed::enqueue(const Part& part, Sent& sent) {
  workspace_.staging.send(workspace_.queue);
  const int64_t width = device_.config_.input_width;
  if (device_.config_.input == Config::Input::kValues) {
    const int64_t stride = padded_depth(width), rows = sent.slice.count();
    workspace_.x.reserve(rows * stride * (device_.kind_ == Weights::kFloat32 ? 4 : 2));
    encode_values(device_.kind_, sent.values, rows, width, workspace_.x.data(), stride,
                  workspace_.queue);
    sent.input = {workspace_.x.data(), stride, nullptr};
  }
  return blocked(part.streams) ? run_blocked(part, sent) : run_layers(part, sent);
}

// Returns the output rows of the last layer.
const void* CudaFeed::run_layers(const Part& part, const Sent& sent) {
  const int64_t each = device_.kind_ == Weights::kFloat32 ? 4 : 2;
  InputRows input = sent.input;
  const void* y = nullptr;
  int turn = 0;
  for (const CudaLayer& layer : device_.layers_) {
    DeviceArray<char>& out = workspace_.y[turn];
    out.reserve((part.streams + sent.slice.count()) * layer.stride() * each);
    const bool last = &layer == &device_.layers_.back();
    layer.run(sent.slice, input, out.data(), last && sent.before, workspace_);
    input = {out.data() + part.streams * layer.stride() * each, layer.stride(), nullptr};
    y = out.data();
    turn = 1 - turn;
  }
  return y;
}

const void* CudaFeed::run_blocked(const Part& part, const Sent& sent) {
  const Config& config = device_.config_;
  const void* x = nullptr;
  BlockedInput input;
  if (config.input != Config::Input::kOneHot) {
    const int64_t step = blocked_bytes(part.streams, config.input_width);
    workspace_.blocked_x.reserve(part.steps * step);
    x = workspace_.blocked_x.data();
    input = {sent.input.x, sent.input.stride,          config.input_width, sent.input.index,
             step,         workspace_.blocked_x.data()};
  }
  void* y = nullptr;
  int turn = 0;
  for (const CudaLayer& layer : device_.layers_) {
    const int64_t step = blocked_bytes(part.streams, layer.hidden_size());
    DeviceArray<char>& h = workspace_.blocked_h[turn];
    h.reserve((part.steps + 1) * step);
    if (&layer == &device_.layers_.back()) {
      workspace_.y[0].reserve((part.streams + sent.slice.count()) * layer.stride() * 2);
      y = workspace_.y[0].data();
    }
    layer.run_blocked(sent.slice, input, x, sent.input.index, h.data(), y, y && sent.before,
                      workspace_);
    x = h.data() + step;
    input = {};
    turn = 1 - turn;
  }
  return y;
}

NotFinite CudaFeed::failure() const {
  for (size_t layer = 0; layer < device_.layers_.size(); ++layer) {
    const int state = workspace_.bad.data()[layer];
    if (state >= 0) return {int64_t(layer), state};
  }
  return {};
}

// Counts the streams that have input at each step.
void CudaFeed::count_rows(const Part& part) {
  workspace_.active.resize(size_t(part.steps));
  workspace_.first.resize(size_t(part.steps) + 1);
  workspace_.first[0] = 0;
  int64_t n = part.streams;
  for (size_t t = 0; t < size_t(part.steps); ++t) {
    while (n > 0 && chunk(n - 1).steps <= part.done + int64_t(t)) --n;
    workspace_.active[t] = int32_t(n);
    workspace_.first[t + 1] = workspace_.first[t] + int32_t(n);
  }
}

// Lists the rows of y that the head reads, stream by stream. Returns whether rows before the slice
// are among them.
bool CudaFeed::list_wanted(const Part& part) {
  WantedRows& logits = workspace_.logits_wanted;
  WantedRows& scores = workspace_.scores_wanted;
  logits.clear();
  scores.clear();
  const int64_t width = device_.config_.output_size;
  const int32_t* first = workspace_.first.data();
  bool before = false;
  for (int64_t i = 0; i < part.streams; ++i) {
    const Chunk& fed = chunk(i);
    const int64_t steps = steps_of(part, i);
    // The row of y after step t of the slice; t = -1 is before the slice.
    const auto row = [&](int64_t t) { return int32_t(t < 0 ? i : part.streams + first[t] + i); };
    if (fed.scores && steps > 0) {
      int32_t* const rows = appended(scores.rows, steps);
      int32_t* const tokens = appended(scores.tokens, steps);
      for (int64_t t = 0; t < steps; ++t) {
        rows[t] = row(t - 1);
        tokens[t] = int32_t(fed.tokens.below(device_.config_.vocab_size, part.done + t));
      }
      scores.add_run(fed.scores + part.done, steps, 1);
      before = true;
    }
    if (!fed.logits) continue;
    if (!fed.last_only) {
      int32_t* const rows = appended(logits.rows, steps);
      for (int64_t t = 0; t < steps; ++t) rows[t] = row(t);
      logits.add_run(fed.logits + part.done * width, steps, width);
    } else if (part.done + steps == fed.steps) {  // its last step, or an empty chunk
      logits.rows.push_back(row(steps - 1));
      logits.add_run(fed.logits, 1, width);
      before = before || steps == 0;
    }
  }
  return before;
}

uint32_t CudaFeed::take_tags(const Part& part) {
  if (part.streams > kFewStreams) return 0;
  int64_t words = 0;
  for (const CudaLayer& layer : device_.layers_) {
    words = std::max(words, layer.words(part.streams));
  }
  return workspace_.take_tags(words, int64_t(device_.layers_.size()) * (part.steps + 1));
}

CudaFeed::Sent CudaFeed::pack(const Part& part) {
  Sent sent{};
  count_rows(part);
  const Config& config = device_.config_;
  const bool tokens_in = config.input != Config::Input::kValues;
  const int64_t rows = workspace_.first.back(), values = tokens_in ? 0 : rows * config.input_width;
  StagingBuffer& staging = workspace_.staging;
  const auto ints = [](int64_t count) { return StagingBuffer::room<int32_t>(count); };
  // Each row may be wanted twice for scores (row and token) and once for logits; an empty chunk has
  // a result without a row.
  staging.begin(ints(1) + 2 * ints(part.steps + 1) + 2 * StagingBuffer::room<float*>(part.streams) +
                4 * ints(rows) + ints(rows + part.streams) + StagingBuffer::room<float>(values));

  const auto active = staging.add<int32_t>(part.steps),
             first = staging.add<int32_t>(part.steps + 1);
  std::copy(workspace_.active.begin(), workspace_.active.end(), active.host);
  std::copy(workspace_.first.begin(), workspace_.first.end(), first.host);
  const auto tag = staging.add<uint32_t>(1);
  *tag.host = take_tags(part);
  const auto from = staging.add<float*>(part.streams), to = staging.add<float*>(part.streams);
  const auto tokens = staging.add<int32_t>(tokens_in ? rows : 0);
  WantedRows& logits = workspace_.logits_wanted;
  const WantedRows& scores = workspace_.scores_wanted;
  logits.clear();
  // The usual call: one token for every stream, and the logits after it. It takes this one pass.
  bool usual = tokens_in && part.steps == 1 && rows == part.streams;
  const int64_t vocab = config.vocab_size, outputs = config.output_size;
  for (int64_t i = 0; i < part.streams; ++i) {
    const Slot slot = *slots_[first_ + i];
    float* const next = device_.side(slot, 1 - slot.current);
    to.host[i] = next;
    // A chunk without steps changes no state.
    from.host[i] = part.done == 0 ? device_.current(slot) : next;
    if (!usual) continue;
    const Chunk& fed = chunk(i);
    usual = fed.logits && !fed.scores && !fed.dt && (!fed.last_only || fed.steps == part.done + 1);
    if (!usual) continue;
    tokens.host[i] = int32_t(fed.tokens.below(vocab, part.done));
    logits.add_run(fed.last_only ? fed.logits : fed.logits + part.done * outputs, 1, outputs);
  }
  sent.slice = {{int(part.streams), int(part.steps), active.device, first.device, from.device,
                 to.device, nullptr},
                active.host,
                first.host,
                tag.device};
  if (tokens_in) sent.input = {device_.embedding_.data(), device_.embedding_stride_, tokens.device};
  if (usual) {
    sent.logits = {nullptr, part.streams, nullptr, &logits.runs, rows};
    return sent;
  }
  fill_inputs(part, sent, rows, tokens.host);
  sent.before = list_wanted(part);
  const auto listed = [&](const std::vector<int32_t>& from_host) -> const int32_t* {
    if (from_host.empty()) return nullptr;
    const auto part_of = staging.add<int32_t>(int64_t(from_host.size()));
    std::memcpy(part_of.host, from_host.data(), from_host.size() * 4);
    return part_of.device;
  };
  sent.logits = {listed(logits.rows), 0, nullptr, &logits.runs, int64_t(logits.rows.size())};
  sent.scores = {listed(scores.rows), 0, listed(scores.tokens), &scores.runs,
                 int64_t(scores.rows.size())};
  return sent;
}

// Stages the tokens or values, and dt, row by row.
void CudaFeed::fill_inputs(const Part& part, Sent& sent, int64_t rows, int32_t* tokens) {
  const Config& config = device_.config_;
  const bool tokens_in = config.input != Config::Input::kValues;
  bool with_dt = false;
  for (int64_t i = 0; i < part.streams; ++i) with_dt = with_dt || chunk(i).dt;
  StagingBuffer& staging = workspace_.staging;
  const auto dt = staging.add<float>(with_dt ? rows : 0);
  const auto values = staging.add<float>(tokens_in ? 0 : rows * config.input_width);
  const int32_t *active = sent.slice.active, *first = sent.slice.first;
  const int64_t width = config.input_width;
  // Goes step by step over a few streams at a time, so that their input and the written rows stay
  // in L1.
  for (int64_t begin = 0; begin < part.streams; begin += kBand) {
    const Chunk* fed[kBand];
    for (int64_t i = 0; i < std::min(kBand, part.streams - begin); ++i) fed[i] = &chunk(begin + i);
    for (int64_t t = 0; t < part.steps && active[t] > begin; ++t) {
      const int64_t count = std::min<int64_t>(kBand, active[t] - begin);
      const int64_t row = first[t] + begin, step = part.done + t;
      if (with_dt)
        for (int64_t i = 0; i < count; ++i) dt.host[row + i] = fed[i]->dt ? fed[i]->dt[step] : 1.0f;
      if (tokens_in)
        for (int64_t i = 0; i < count; ++i)
          tokens[row + i] = int32_t(fed[i]->tokens.below(config.vocab_size, step));
      else
        for (int64_t i = 0; i < count; ++i)
          std::memcpy(values.host + (row + i) * width, fed[i]->values + step * width,
                      size_t(width) * 4);
    }
  }
  if (with_dt) sent.slice.rows.dt = dt.device;
  if (!tokens_in) sent.values = values.device;
}

}  // namespace tsm::cuda
