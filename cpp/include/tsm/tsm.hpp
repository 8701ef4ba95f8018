// tsm for C++17: tsm::Model and tsm::Stream, which own their handles and throw tsm::Error.
//
//   auto model = tsm::Model::load("model.tsm");
//   auto stream = model.create_stream();
//   std::vector<float> logits = stream.feed(tokens);           // [T, V]
//   stream.feed(tokens, logits);                               // the same, no allocation
//
// Header only, over the C API (tsm/tsm.h); the rules given there apply here as well. A Model may be
// used by many threads at once, a Stream by one at a time. Letters: T steps, I input width, V width
// of the logits.
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
// A separate namespace, so that these names do not clash with namespace tsm in a static library.
inline namespace api_v2 {

class Error : public std::runtime_error {
 public:
  Error(tsm_status status, const char* message, std::int64_t chunk = -1)
      : std::runtime_error(message), status(status), chunk(chunk) {}
  tsm_status status;
  std::int64_t chunk;  // index in feed_many or generate_many; -1: no single one
};

inline void check(tsm_status status) {
  if (status != TSM_OK) throw Error(status, tsm_last_error(), tsm_last_error_chunk());
}

// Contiguous values owned by the caller: a vector, an array, a string's characters, a pointer and a
// size. T is const if the values are only read.
template <class T>
class Span {
 public:
  constexpr Span() = default;
  // An empty span is null, whatever its container has allocated: null means "not given" below.
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

using Floats = Span<const float>;

// Tokens as 64-bit, 32-bit or 16-bit integers, from any container or Span.
class Tokens {
 public:
  constexpr Tokens() = default;
  template <class T>
  constexpr Tokens(const T* data, std::size_t size)
      : data_(size ? data : nullptr), size_(size), type_(type_of(data)) {}
  template <class C,
            class = std::enable_if_t<
                !std::is_same_v<std::decay_t<C>, Tokens> &&
                std::is_integral_v<std::remove_reference_t<decltype(*std::declval<C&>().data())>>>>
  constexpr Tokens(C&& container) : Tokens(container.data(), container.size()) {}
  template <class T, std::size_t N>
  constexpr Tokens(const T (&array)[N]) : Tokens(&array[0], N) {}

  constexpr const void* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr tsm_token_type type() const { return type_; }

 private:
  static constexpr tsm_token_type type_of(const std::int64_t*) { return TSM_INT64; }
  static constexpr tsm_token_type type_of(const std::int32_t*) { return TSM_INT32; }
  static constexpr tsm_token_type type_of(const std::uint16_t*) { return TSM_UINT16; }

  const void* data_ = nullptr;
  std::size_t size_ = 0;
  tsm_token_type type_ = TSM_INT64;
};

// Cancels the calls that it is passed to, from any thread: they throw TSM_CANCELLED and leave their
// streams unchanged. It stays set until it is cleared, and must outlive those calls.
class Cancel {
 public:
  Cancel() {
    tsm_cancel* made = nullptr;
    check(tsm_cancel_create(&made));
    cancel_.reset(made);
  }
  void set() { tsm_cancel_set(get()); }
  void clear() { tsm_cancel_clear(get()); }
  bool is_set() const { return tsm_cancel_is_set(get()) != 0; }
  tsm_cancel* get() const { return cancel_.get(); }

 private:
  struct Free {
    void operator()(tsm_cancel* cancel) const { tsm_cancel_free(cancel); }
  };
  std::unique_ptr<tsm_cancel, Free> cancel_;
};

// A chunk or generation that was refused; its stream is unchanged.
struct Failure {
  std::size_t chunk;
  tsm_status status;
  std::string message;
};

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
  double dt = 1;  // duration of each step, if the model takes dt
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

// The input of one stream in Model::feed_many. Set tokens or values; all other fields may stay
// empty.
struct Chunk {
  Stream* stream = nullptr;
  Tokens tokens = {};
  Floats values = {};
  Floats dt = {};
  Span<float> logits = {};
  Span<float> log_probs = {};  // [T], as from Stream::score
  Outputs outputs = Outputs::kEachStep;
};

// What one stream generates in Model::generate_many: as many tokens as there is room for.
struct Generation {
  Stream* stream = nullptr;
  Span<std::int64_t> tokens = {};
  Sampling sampling = {};
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
  // Empty if the file has no such asset.
  std::string_view asset(const std::string& name) const {
    const void* data = nullptr;
    std::size_t bytes = 0;
    check(tsm_model_get_asset(get(), name.c_str(), &data, &bytes));
    return {static_cast<const char*>(data), bytes};
  }

  // Converts UTF-8 to tokens and back, if the file has a dictionary; see tsm_model_encode.
  std::vector<std::int64_t> encode(std::string_view text) const {
    std::vector<std::int64_t> tokens(text.size());  // there are never more
    std::size_t count = 0;
    check(tsm_model_encode(get(), text.data(), text.size(), tokens.data(), tokens.size(), &count));
    tokens.resize(count);
    return tokens;
  }
  std::string decode(Span<const std::int64_t> tokens) const {
    std::size_t bytes = 0;
    check(tsm_model_decode(get(), tokens.data(), tokens.size(), nullptr, 0, &bytes));
    std::string text(bytes, '\0');
    check(tsm_model_decode(get(), tokens.data(), tokens.size(), text.data(), bytes, &bytes));
    return text;
  }

  Stream create_stream() const;

  // Feeds many streams at once, with chunks of any length; all are checked before the first is fed.
  // It is an error to pass the same stream twice, or outputs that overlap each other or their own
  // input. One bad chunk fails the call.
  void feed_many(Span<const Chunk> chunks, const Cancel* cancel = nullptr) const;
  // The same, but a bad chunk is refused alone. Returns the chunks that were not fed.
  std::vector<Failure> try_feed_many(Span<const Chunk> chunks,
                                     const Cancel* cancel = nullptr) const;
  // Draws tokens for many streams at once, each with its own sampling; see tsm_model_generate_many.
  void generate_many(Span<const Generation> generations, const Cancel* cancel = nullptr) const;
  std::vector<Failure> try_generate_many(Span<const Generation> generations,
                                         const Cancel* cancel = nullptr) const;

  tsm_model* get() const { return model_.get(); }

 private:
  void feed_many(Span<const Chunk> chunks, const Cancel* cancel, tsm_failure* failures) const;
  void generate_many(Span<const Generation> generations, const Cancel* cancel,
                     tsm_failure* failures) const;
  template <class Call>
  static std::vector<Failure> collect(std::size_t count, const Call& call);

  explicit Model(tsm_model* model) : model_(model) { check(tsm_model_get_info(model, &info_)); }
  struct Free {
    void operator()(tsm_model* model) const { tsm_model_free(model); }
  };
  std::unique_ptr<tsm_model, Free> model_;
  tsm_model_info info_ = TSM_MODEL_INFO_INIT;
};

class Stream {
 public:
  // Feeds tokens [T] or values [T, I]. dt is [T], or empty if every step lasts 1. logits is [T, V],
  // or [V] with Outputs::kLastStep, or empty if not wanted. Containers are used in place; nothing
  // is allocated.
  void feed(Tokens tokens, Span<float> logits, Outputs outputs = Outputs::kEachStep, Floats dt = {},
            const Cancel* cancel = nullptr) {
    tsm_chunk chunk = chunk_of(tokens.data(), tokens.type(), tokens.size(), dt);
    chunk.logits = logits.data();
    chunk.room = logits.size();
    chunk.last_only = outputs == Outputs::kLastStep;
    run(chunk, cancel);
  }
  void feed(Floats values, Span<float> logits, Outputs outputs = Outputs::kEachStep, Floats dt = {},
            const Cancel* cancel = nullptr) {
    tsm_chunk chunk = chunk_of(nullptr, TSM_INT64, steps(values), dt);
    chunk.values = values.data();
    chunk.logits = logits.data();
    chunk.room = logits.size();
    chunk.last_only = outputs == Outputs::kLastStep;
    run(chunk, cancel);
  }
  // The same, but returns the logits in a vector.
  std::vector<float> feed(Tokens tokens, Outputs outputs = Outputs::kEachStep, Floats dt = {},
                          const Cancel* cancel = nullptr) {
    std::vector<float> logits(rows(tokens.size(), outputs) * output_size());
    feed(tokens, room(logits), outputs, dt, cancel);
    return logits;
  }
  std::vector<float> feed(Floats values, Outputs outputs = Outputs::kEachStep, Floats dt = {},
                          const Cancel* cancel = nullptr) {
    std::vector<float> logits(rows(steps(values), outputs) * output_size());
    feed(values, room(logits), outputs, dt, cancel);
    return logits;
  }

  // log_probs[i] = log p(token i | all before it), starting from the current state.
  void score(Tokens tokens, Span<float> log_probs, Floats dt = {}, const Cancel* cancel = nullptr) {
    require(log_probs.size() == tokens.size(), "log_probs", log_probs.size(), tokens.size());
    tsm_chunk chunk = chunk_of(tokens.data(), tokens.type(), tokens.size(), dt);
    chunk.log_probs = log_probs.data();
    run(chunk, cancel);
  }
  std::vector<float> score(Tokens tokens) {
    std::vector<float> log_probs(tokens.size());
    score(tokens, log_probs);
    return log_probs;
  }

  // Fills `tokens`; each one is drawn and fed before the next.
  void generate(Span<std::int64_t> tokens, const Sampling& sampling = {},
                const Cancel* cancel = nullptr) {
    const tsm_sampling chosen = sampling_of(sampling);
    const tsm_generation generation = generation_of(get(), tokens, &chosen);
    check(tsm_stream_generate_tokens(&generation, cancel ? cancel->get() : nullptr));
  }
  std::vector<std::int64_t> generate(std::size_t n, const Sampling& sampling = {},
                                     const Cancel* cancel = nullptr) {
    std::vector<std::int64_t> tokens(n);
    generate(Span<std::int64_t>(tokens), sampling, cancel);
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
  static tsm_sampling sampling_of(const Sampling& sampling) {
    tsm_sampling chosen = TSM_SAMPLING_INIT;
    chosen.temperature = sampling.temperature;
    chosen.top_k = sampling.top_k;
    chosen.top_p = sampling.top_p;
    chosen.seed = sampling.seed;
    chosen.dt = sampling.dt;
    return chosen;
  }
  static tsm_generation generation_of(tsm_stream* stream, Span<std::int64_t> tokens,
                                      const tsm_sampling* sampling) {
    tsm_generation generation = TSM_GENERATION_INIT;
    generation.stream = stream;
    generation.n = std::int64_t(tokens.size());
    generation.tokens = tokens.data();
    generation.sampling = sampling;
    return generation;
  }
  static void check_dt(Floats dt, std::size_t T) {
    require(dt.empty() || dt.size() == T, "dt", dt.size(), T);
  }
  static std::size_t rows(std::size_t T, Outputs outputs) {
    return outputs == Outputs::kLastStep ? 1 : T;
  }
  tsm_chunk chunk_of(const void* tokens, tsm_token_type type, std::size_t T, Floats dt) const {
    check_dt(dt, T);
    tsm_chunk chunk = TSM_CHUNK_INIT;
    chunk.stream = get();
    chunk.tokens = tokens;
    chunk.token_type = type;
    chunk.T = std::int64_t(T);
    chunk.dt = dt.data();
    return chunk;
  }
  static void run(const tsm_chunk& chunk, const Cancel* cancel) {
    check(tsm_stream_feed_chunk(&chunk, cancel ? cancel->get() : nullptr));
  }
  static Span<float> room(std::vector<float>& logits) { return logits; }
  std::size_t output_size() const { return output_size_; }
  // A model that takes tokens has input_size 0; the C function reports the error.
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

inline void Model::feed_many(Span<const Chunk> chunks, const Cancel* cancel,
                             tsm_failure* failures) const {
  std::vector<tsm_chunk> batch;
  std::vector<Failure> refused;
  batch.reserve(chunks.size());
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& c = chunks.data()[i];
    const std::size_t I = std::size_t(input_size());
    const std::size_t T = takes_tokens() || I == 0 ? c.tokens.size() : c.values.size() / I;
    tsm_chunk chunk = TSM_CHUNK_INIT;
    chunk.stream = c.stream ? c.stream->get() : nullptr;
    chunk.tokens = c.tokens.data();
    chunk.token_type = c.tokens.type();
    chunk.values = c.values.data();
    chunk.T = std::int64_t(T);
    chunk.dt = c.dt.data();
    chunk.logits = c.logits.data();
    chunk.room = c.logits.size();
    chunk.log_probs = c.log_probs.data();
    chunk.last_only = c.outputs == Outputs::kLastStep;
    batch.push_back(chunk);
    try {  // what the C API cannot check
      Stream::require(takes_tokens() || c.values.size() == T * I, "values", c.values.size(), T * I);
      Stream::check_dt(c.dt, T);
      Stream::require(c.log_probs.empty() || c.log_probs.size() == T, "log_probs",
                      c.log_probs.size(), T);
    } catch (const Error& error) {
      const std::string message = "chunks[" + std::to_string(i) + "]: " + error.what();
      if (!failures) throw Error(error.status, message.c_str(), std::int64_t(i));
      batch.back().stream = nullptr;  // the C API refuses it again
      refused.push_back({i, error.status, message});
    }
  }
  tsm_call call = TSM_CALL_INIT;
  call.cancel = cancel ? cancel->get() : nullptr;
  call.failures = failures;
  check(tsm_model_feed_many(get(), batch.data(), batch.size(), &call));
  for (const Failure& failure : refused) {
    tsm_failure& place = failures[failure.chunk];
    place.message[failure.message.copy(place.message, sizeof place.message - 1)] = 0;
  }
}

inline void Model::generate_many(Span<const Generation> generations, const Cancel* cancel,
                                 tsm_failure* failures) const {
  std::vector<tsm_sampling> sampling;
  std::vector<tsm_generation> batch;
  sampling.reserve(generations.size());
  batch.reserve(generations.size());
  for (std::size_t i = 0; i < generations.size(); ++i) {
    const Generation& g = generations.data()[i];
    sampling.push_back(Stream::sampling_of(g.sampling));
    batch.push_back(
        Stream::generation_of(g.stream ? g.stream->get() : nullptr, g.tokens, &sampling.back()));
  }
  tsm_call call = TSM_CALL_INIT;
  call.cancel = cancel ? cancel->get() : nullptr;
  call.failures = failures;
  check(tsm_model_generate_many(get(), batch.data(), batch.size(), &call));
}

template <class Call>
std::vector<Failure> Model::collect(std::size_t count, const Call& call) {
  std::vector<tsm_failure> all(count);
  call(all.data());
  std::vector<Failure> failures;
  for (std::size_t i = 0; i < count; ++i)
    if (all[i].status != TSM_OK) failures.push_back({i, tsm_status(all[i].status), all[i].message});
  return failures;
}

inline void Model::feed_many(Span<const Chunk> chunks, const Cancel* cancel) const {
  feed_many(chunks, cancel, nullptr);
}
inline std::vector<Failure> Model::try_feed_many(Span<const Chunk> chunks,
                                                 const Cancel* cancel) const {
  return collect(chunks.size(), [&](tsm_failure* all) { feed_many(chunks, cancel, all); });
}
inline void Model::generate_many(Span<const Generation> generations, const Cancel* cancel) const {
  generate_many(generations, cancel, nullptr);
}
inline std::vector<Failure> Model::try_generate_many(Span<const Generation> generations,
                                                     const Cancel* cancel) const {
  return collect(generations.size(),
                 [&](tsm_failure* all) { generate_many(generations, cancel, all); });
}

}  // namespace api_v2
}  // namespace tsm
