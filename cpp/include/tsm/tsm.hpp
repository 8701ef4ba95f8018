// tsm for C++17: tsm::Model and tsm::Stream, which own their handles and throw tsm::Error.
//
//   auto model = tsm::Model::load("model.tsm");
//   auto stream = model.create_stream();
//   std::vector<float> logits = stream.feed(tokens);           // [T, V]
//   stream.feed(tokens, logits);                               // the same, no allocation
//
// Header only, over the C API (tsm/tsm.h), whose rules hold here too: a Model may be used by many
// threads at once, a Stream by one at a time. Letters: T steps, I input width, V width of the
// logits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tsm/tsm.h"

namespace tsm {
// Its own name inside the binary, so that it meets no other tsm:: there (a static library's
// insides).
inline namespace api_v1 {

class Error : public std::runtime_error {
 public:
  Error(tsm_status status, const char* message) : std::runtime_error(message), status(status) {}
  tsm_status status;
};

inline void check(tsm_status status) {
  if (status != TSM_OK) throw Error(status, tsm_last_error());
}

// `count` values in a row that somebody else owns: a vector, an array, a string's characters, a
// pointer and a size. T is const where the values are only read.
template <class T>
class Span {
 public:
  constexpr Span() = default;
  // One of no values is null, whatever room its container has kept: null is "not given" below.
  constexpr Span(T* data, std::size_t size) : data_(size ? data : nullptr), size_(size) {}
  template <std::size_t N>
  constexpr Span(T (&array)[N]) : data_(array), size_(N) {}
  // Any container with data() and size() of T: std::vector, std::array, std::span.
  template <class C,
            class = std::enable_if_t<std::is_convertible_v<
                std::remove_pointer_t<decltype(std::declval<C&>().data())> (*)[], T (*)[]>>>
  constexpr Span(C&& container) : Span(container.data(), container.size()) {}

  constexpr T* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

using Tokens = Span<const std::int64_t>;
using Floats = Span<const float>;

struct LoadOptions {
  tsm_dtype dtype = TSM_FLOAT32;
  int threads = 1;
  tsm_device device = TSM_CPU;
};

struct Sampling {
  double temperature = 1;  // 0: always the most probable
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;        // 1: all
  std::uint64_t seed = 0;
  double dt = 1;  // how long each step lasts, where the model takes dt
};

enum class Outputs { kEachStep, kLastStep };

struct StateInfo {
  std::string name;
  std::int64_t width;
};

struct LayerInfo {
  std::string cell;
  std::int64_t input_size, hidden_size;
  std::vector<StateInfo> states;
  bool interpreted;
};

class Stream;

// What one stream is fed by Model::feed_many. Give tokens or values; the others may be empty.
struct Chunk {
  Stream* stream = nullptr;
  Tokens tokens = {};
  Floats values = {};
  Floats dt = {};
  Span<float> logits = {};
  Span<float> log_probs = {};  // [T], as Stream::score gives
  Outputs outputs = Outputs::kEachStep;
};

class Model {
 public:
  static Model load(const std::string& path, const LoadOptions& options = {}) {
    tsm_load_options chosen = TSM_LOAD_OPTIONS_INIT;
    chosen.dtype = options.dtype;
    chosen.threads = options.threads;
    chosen.device = options.device;
    tsm_model* model = nullptr;
    check(tsm_model_load(path.c_str(), &chosen, &model));
    return Model(model);
  }

  // Facts; see tsm_model_info.
  tsm_family family() const { return tsm_family(info_.family); }
  bool takes_tokens() const { return info_.takes_tokens != 0; }
  std::int64_t vocab_size() const { return info_.vocab_size; }
  std::int64_t input_size() const { return info_.input_size; }
  std::int64_t output_size() const { return info_.output_size; }
  bool takes_dt() const { return info_.takes_dt != 0; }
  double shortest_dt() const { return info_.shortest_dt; }
  std::uint64_t fingerprint() const { return info_.fingerprint; }
  tsm_dtype dtype() const { return tsm_dtype(info_.dtype); }
  int threads() const { return info_.threads; }
  tsm_device device() const { return tsm_device(info_.device); }
  const char* level() const { return info_.level; }
  std::vector<LayerInfo> layers() const;
  std::string_view config() const {
    const char* text = nullptr;
    std::size_t bytes = 0;
    check(tsm_model_get_config(get(), &text, &bytes));
    return {text, bytes};
  }
  // Empty where the file has no such asset.
  std::string_view asset(const std::string& name) const {
    const void* data = nullptr;
    std::size_t bytes = 0;
    check(tsm_model_get_asset(get(), name.c_str(), &data, &bytes));
    return {static_cast<const char*>(data), bytes};
  }

  // UTF-8 as tokens and back, where the file carries its dictionary; see tsm_model_encode.
  std::vector<std::int64_t> encode(std::string_view text) const {
    std::vector<std::int64_t> tokens(text.size());  // there are never more
    std::size_t count = 0;
    check(tsm_model_encode(get(), text.data(), text.size(), tokens.data(), tokens.size(), &count));
    tokens.resize(count);
    return tokens;
  }
  std::string decode(Tokens tokens) const {
    std::size_t bytes = 0;
    check(tsm_model_decode(get(), tokens.data(), tokens.size(), nullptr, 0, &bytes));
    std::string text(bytes, '\0');
    check(tsm_model_decode(get(), tokens.data(), tokens.size(), text.data(), bytes, &bytes));
    return text;
  }

  Stream create_stream() const;

  // Feeds many streams at once, chunks of any lengths; all are checked before the first is fed. The
  // same stream twice is an error, and so are outputs that overlap, or that lie in their own input.
  void feed_many(Span<const Chunk> chunks) const;

  tsm_model* get() const { return model_.get(); }

 private:
  explicit Model(tsm_model* model) : model_(model) { check(tsm_model_get_info(model, &info_)); }
  struct Free {
    void operator()(tsm_model* model) const { tsm_model_free(model); }
  };
  std::unique_ptr<tsm_model, Free> model_;
  tsm_model_info info_ = TSM_MODEL_INFO_INIT;
};

class Stream {
 public:
  // Feeds tokens [T] or values [T, I]; dt [T], or empty: every step lasts 1. logits [T, V], or [V]
  // with Outputs::kLastStep, or empty: not wanted. A container is taken as it is: no allocation.
  void feed(Tokens tokens, Span<float> logits, Outputs outputs = Outputs::kEachStep,
            Floats dt = {}) {
    check_dt(dt, tokens.size());
    check(tsm_stream_feed_tokens(get(), tokens.data(), std::int64_t(tokens.size()), dt.data(),
                                 logits.data(), logits.size(), outputs == Outputs::kLastStep));
  }
  void feed(Floats values, Span<float> logits, Outputs outputs = Outputs::kEachStep,
            Floats dt = {}) {
    const std::size_t T = steps(values);
    check_dt(dt, T);
    check(tsm_stream_feed_values(get(), values.data(), std::int64_t(T), dt.data(), logits.data(),
                                 logits.size(), outputs == Outputs::kLastStep));
  }
  // The same with a vector of the right size as the result.
  std::vector<float> feed(Tokens tokens, Outputs outputs = Outputs::kEachStep, Floats dt = {}) {
    std::vector<float> logits(rows(tokens.size(), outputs) * output_size());
    feed(tokens, room(logits), outputs, dt);
    return logits;
  }
  std::vector<float> feed(Floats values, Outputs outputs = Outputs::kEachStep, Floats dt = {}) {
    std::vector<float> logits(rows(steps(values), outputs) * output_size());
    feed(values, room(logits), outputs, dt);
    return logits;
  }

  // log p(token i | all before it), the first from the current state.
  void score(Tokens tokens, Span<float> log_probs, Floats dt = {}) {
    check_dt(dt, tokens.size());
    require(log_probs.size() == tokens.size(), "log_probs", log_probs.size(), tokens.size());
    check(tsm_stream_score(get(), tokens.data(), std::int64_t(tokens.size()), dt.data(),
                           log_probs.data()));
  }
  std::vector<float> score(Tokens tokens) {
    std::vector<float> log_probs(tokens.size());
    score(tokens, log_probs);
    return log_probs;
  }

  // Fills `tokens`, each drawn and fed before the next.
  void generate(Span<std::int64_t> tokens, const Sampling& sampling = {}) {
    tsm_sampling chosen = TSM_SAMPLING_INIT;
    chosen.temperature = sampling.temperature;
    chosen.top_k = sampling.top_k;
    chosen.top_p = sampling.top_p;
    chosen.seed = sampling.seed;
    chosen.dt = sampling.dt;
    check(tsm_stream_generate(get(), std::int64_t(tokens.size()), &chosen, tokens.data()));
  }
  std::vector<std::int64_t> generate(std::size_t n, const Sampling& sampling = {}) {
    std::vector<std::int64_t> tokens(n);
    generate(Span<std::int64_t>(tokens), sampling);
    return tokens;
  }

  std::int64_t position() const {
    std::int64_t steps = 0;
    check(tsm_stream_get_position(get(), &steps));
    return steps;
  }
  double time() const {
    double time = 0;
    check(tsm_stream_get_time(get(), &time));
    return time;
  }
  void state(int layer, int state, Span<float> values) const {
    check(tsm_stream_get_state(get(), layer, state, values.data(), values.size()));
  }

  std::vector<std::uint8_t> save() const {
    std::size_t bytes = 0;
    check(tsm_stream_save(get(), nullptr, 0, &bytes));
    std::vector<std::uint8_t> blob(bytes);
    check(tsm_stream_save(get(), blob.data(), blob.size(), &bytes));
    return blob;
  }
  void load(Span<const std::uint8_t> blob) {
    check(tsm_stream_load(get(), blob.data(), blob.size()));
  }
  Stream fork() const {
    tsm_stream* copy = nullptr;
    check(tsm_stream_fork(get(), &copy));
    return Stream(copy, input_size_, output_size_);
  }
  void reset() { check(tsm_stream_reset(get())); }

  tsm_stream* get() const { return stream_.get(); }

 private:
  friend class Model;
  Stream(tsm_stream* stream, std::size_t I, std::size_t V)
      : stream_(stream), input_size_(I), output_size_(V) {}

  static void require(bool right, const char* name, std::size_t found, std::size_t accepted) {
    if (right) return;
    const std::string message = std::string(name) + " holds " + std::to_string(found) +
                                " values; accepted: " + std::to_string(accepted);
    throw Error(TSM_INVALID_ARGUMENT, message.c_str());
  }
  static void check_dt(Floats dt, std::size_t T) {
    require(dt.empty() || dt.size() == T, "dt", dt.size(), T);
  }
  static std::size_t rows(std::size_t T, Outputs outputs) {
    return outputs == Outputs::kLastStep ? 1 : T;
  }
  static Span<float> room(std::vector<float>& logits) { return logits; }
  std::size_t output_size() const { return output_size_; }
  // A model of tokens has no width; the C function then says so.
  std::size_t steps(Floats values) const {
    if (input_size_ == 0) return values.size();
    require(values.size() % input_size_ == 0, "values", values.size(), input_size_);
    return values.size() / input_size_;
  }

  struct Free {
    void operator()(tsm_stream* stream) const { tsm_stream_free(stream); }
  };
  std::unique_ptr<tsm_stream, Free> stream_;
  std::size_t input_size_, output_size_;
};

inline Stream Model::create_stream() const {
  tsm_stream* stream = nullptr;
  check(tsm_stream_create(get(), &stream));
  return Stream(stream, std::size_t(input_size()), std::size_t(output_size()));
}

inline std::vector<LayerInfo> Model::layers() const {
  std::vector<LayerInfo> layers;
  for (int32_t l = 0; l < info_.layers; ++l) {
    tsm_layer_info info = TSM_LAYER_INFO_INIT;
    check(tsm_model_get_layer_info(get(), l, &info));
    std::vector<StateInfo> states;
    for (int32_t s = 0; s < info.states; ++s) {
      const char* name = nullptr;
      std::int64_t width = 0;
      check(tsm_model_get_state_info(get(), l, s, &name, &width));
      states.push_back({name, width});
    }
    layers.push_back(
        {info.cell, info.input_size, info.hidden_size, std::move(states), info.interpreted != 0});
  }
  return layers;
}

inline void Model::feed_many(Span<const Chunk> chunks) const {
  thread_local std::vector<tsm_chunk> batch;  // grows to the largest call of this thread
  batch.clear();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& c = chunks.data()[i];
    const std::size_t T = takes_tokens()
                              ? c.tokens.size()
                              : c.values.size() / std::size_t(input_size() > 0 ? input_size() : 1);
    if (!takes_tokens() && c.values.size() != T * std::size_t(input_size()))
      throw Error(TSM_INVALID_ARGUMENT, "values of a chunk are no whole number of rows");
    Stream::check_dt(c.dt, T);
    Stream::require(c.log_probs.empty() || c.log_probs.size() == T, "log_probs", c.log_probs.size(),
                    T);
    batch.push_back({c.stream ? c.stream->get() : nullptr, c.tokens.data(), c.values.data(),
                     std::int64_t(T), c.dt.data(), c.logits.data(), c.logits.size(),
                     c.log_probs.data(), c.outputs == Outputs::kLastStep, 0});
  }
  check(tsm_model_feed_many(get(), batch.data(), batch.size()));
}

}  // namespace api_v1
}  // namespace tsm
