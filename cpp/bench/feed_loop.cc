#include "bench/feed_loop.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "engine/pool/pool.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace tsm::bench {
namespace {

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

LoadOptions options_of(const std::string& dtype, int threads, const std::string& device) {
  require(device == "cpu" || device == "cuda", "device = '" + device + "'; accepted: cpu, cuda");
  LoadOptions options;
  options.threads = threads;
  options.device = device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  if (dtype == "bfloat16") {
    options.weights = Weights::kBFloat16;
  } else if (dtype == "int8") {
    options.weights = Weights::kInt8;
  } else {
    require(dtype == "float32", "dtype = '" + dtype + "'; accepted: float32, bfloat16, int8");
  }
  return options;
}

FeedLoop::FeedLoop(const std::string& path, const LoadOptions& options, int64_t streams,
                   int64_t steps, bool last_only)
    : model_(Model::load(path, options)) {
  std::mt19937 random(1);
  const int64_t numbers = steps * (model_->takes_tokens() ? 1 : model_->input_size());
  if (model_->takes_tokens()) {
    std::uniform_int_distribution<int64_t> token(0, model_->vocab_size() - 1);
    for (int64_t i = 0; i < streams * numbers; ++i) tokens_.push_back(token(random));
  } else {
    std::normal_distribution<float> value;
    for (int64_t i = 0; i < streams * numbers; ++i) values_.push_back(value(random));
  }
  const int64_t outputs = (last_only ? 1 : steps) * model_->output_size();
  logits_.resize(size_t(streams * outputs));
  for (int64_t i = 0; i < streams; ++i) {
    streams_.push_back(model_->create_stream());
    Chunk chunk{};
    chunk.stream = streams_.back().get();
    chunk.tokens = tokens_.empty() ? nullptr : tokens_.data() + i * numbers;
    chunk.values = values_.empty() ? nullptr : values_.data() + i * numbers;
    chunk.steps = steps;
    chunk.logits = logits_.data() + i * outputs;
    chunk.last_only = last_only;
    chunks_.push_back(chunk);
  }
}

double FeedLoop::run(int64_t calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) model_->feed(chunks_.data(), int64_t(chunks_.size()));
  return since(start);
}

double FeedLoop::run_pool(int64_t chunks) {
  constexpr int64_t kQueued = 2;
  const auto streams = int64_t(chunks_.size());
  PoolOptions options;
  options.max_queue = kQueued * streams;
  StreamPool pool(model_, options);
  int64_t sent = 0, ended = 0;
  std::unordered_map<uint64_t, int64_t> stream_of;  // by ticket
  const auto send = [&](int64_t i) {
    const Chunk& chunk = chunks_[size_t(i)];
    FeedRequest asked;
    asked.tokens = chunk.tokens;
    asked.values = chunk.values;
    asked.steps = chunk.steps;
    asked.logits = chunk.last_only ? LogitsOf::kLast : LogitsOf::kEach;
    stream_of[pool.feed(std::to_string(i), asked, {})] = i;
    ++sent;
  };
  const auto start = std::chrono::steady_clock::now();
  for (int64_t round = 0; round < std::min(kQueued, chunks); ++round)
    for (int64_t i = 0; i < streams; ++i) send(i);
  while (ended < chunks * streams) {
    for (auto& event : pool.take(streams, -1)) {
      require(event->error == ErrorKind(), event->message);
      ++ended;
      const int64_t i = stream_of.extract(event->ticket).mapped();
      pool.give_back(std::move(event));
      if (sent < chunks * streams) send(i);
    }
  }
  return since(start);
}

int64_t stream_bytes(const Model& model) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  constexpr int64_t kStreams = 1000;
  std::vector<std::unique_ptr<Stream>> streams(kStreams);
  const auto used = [] {
    const struct mallinfo2 info = mallinfo2();
    return int64_t(info.uordblks + info.hblkhd);
  };
  streams[0] = model.create_stream();  // allocates what all streams share
  const int64_t before = used();
  for (int64_t i = 1; i < kStreams; ++i) streams[size_t(i)] = model.create_stream();
  return (used() - before) / (kStreams - 1);
#else
  (void)model;
  return 0;
#endif
}

}  // namespace tsm::bench
