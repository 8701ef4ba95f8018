// The C API (tsm/tsm.h): checks the arguments and calls the engine.
//
// A tsm_stream is the engine's Stream itself, so a handle costs nothing. A tsm_model holds one
// reference to the shared model, and so does each of its streams.
#include "tsm/tsm.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "c_api/guard.h"
#include "c_api/handles.h"
#include "c_api/sized.h"
#include "engine/feed.h"
#include "engine/model.h"
#include "engine/stream.h"

namespace tsm::c_api {
namespace {

tsm_stream* handle(std::unique_ptr<Stream> stream) {
  return reinterpret_cast<tsm_stream*>(stream.release());
}
const Stream& stream_of(const tsm_stream* stream) {
  return *reinterpret_cast<const Stream*>(given(stream, "stream"));
}
// Holds a stream while it is read, so that the reader never sees half of another thread's step.
class Read {
 public:
  explicit Read(const tsm_stream* stream) : stream_(stream_of(stream)) { hold_.add(stream_); }
  const Stream* operator->() const { return &stream_; }

 private:
  Hold hold_;
  const Stream& stream_;
};

Weights weights_of(int32_t dtype) {
  switch (dtype) {
    case TSM_FLOAT32:
      return Weights::kFloat32;
    case TSM_BFLOAT16:
      return Weights::kBFloat16;
    case TSM_INT8:
      return Weights::kInt8;
  }
  throw Error("options->dtype = " + std::to_string(dtype) +
              "; accepted: TSM_FLOAT32, TSM_BFLOAT16, TSM_INT8");
}
tsm_dtype dtype_of(Weights weights) {
  if (weights == Weights::kInt8) return TSM_INT8;
  return weights == Weights::kBFloat16 ? TSM_BFLOAT16 : TSM_FLOAT32;
}
DeviceKind device_of(int32_t device) {
  switch (device) {
    case TSM_CPU:
      return DeviceKind::kCpu;
    case TSM_CUDA:
      return DeviceKind::kCuda;
  }
  throw Error("options->device = " + std::to_string(device) + "; accepted: TSM_CPU, TSM_CUDA");
}
tsm_family family_of(Family family) {
  if (family == Family::kClassifier) return TSM_CLASSIFIER;
  return family == Family::kTagger ? TSM_TAGGER : TSM_LANGUAGE_MODEL;
}

void check_index(const char* name, int64_t value, size_t count) {
  require(value >= 0 && value < int64_t(count), std::string(name) + " = " + std::to_string(value) +
                                                    "; accepted: 0 to " +
                                                    std::to_string(int64_t(count) - 1));
}
const StateInfo& state_info(const Model& model, int32_t layer, int32_t state) {
  check_index("layer", layer, model.layers().size());
  const auto& states = model.layers()[size_t(layer)].states;
  check_index("state", state, states.size());
  return states[size_t(state)];
}

tsm_status feed_one(tsm_stream* stream, const int64_t* tokens, const float* values, int64_t T,
                    const float* dt, float* logits, size_t room, int last_only, bool as_tokens) {
  return guard([&] {
    const Model& model = stream_of(stream).model();
    if (model.takes_tokens() != as_tokens)
      throw Error(
          as_tokens
              ? "tokens given to a model that takes float rows; accepted: tsm_stream_feed_values"
              : "values given to a model that takes tokens; accepted: tsm_stream_feed_tokens");
    if (T > 0) as_tokens ? (void)given(tokens, "tokens") : (void)given(values, "values");
    tsm_chunk chunk = TSM_CHUNK_INIT;
    chunk.stream = stream, chunk.tokens = tokens, chunk.values = values, chunk.T = T;
    chunk.dt = dt, chunk.logits = logits, chunk.room = room, chunk.last_only = last_only != 0;
    const Chunk checked = engine_chunk(model, chunk);
    model.feed(&checked, 1, {nullptr, nullptr, true});
  });
}

}  // namespace

}  // namespace tsm::c_api

using namespace tsm;
using namespace tsm::c_api;

extern "C" {

const char* tsm_last_error(void) { return last_error(); }

int64_t tsm_last_error_chunk(void) { return last_error_chunk(); }

const char* tsm_status_name(int status) {
  static const char* const names[] = {"ok",   "invalid argument", "bad file", "bad state",
                                      "busy", "out of memory",    "internal", "cancelled",
                                      "full", "deadline",         "closed"};
  const unsigned i = unsigned(status);
  return i < sizeof(names) / sizeof(*names) ? names[i] : "unknown status";
}

const char* tsm_version(void) { return TSM_VERSION; }

int tsm_abi_version(void) { return TSM_ABI_VERSION; }

tsm_status tsm_model_load(const char* path, const tsm_load_options* options, tsm_model** model) {
  return guard([&] {
    given(model, "model");
    const auto chosen = read_known(options, tsm_load_options TSM_LOAD_OPTIONS_INIT, "options");
    LoadOptions load;
    load.weights = weights_of(chosen.dtype);
    load.threads = chosen.threads;
    load.device = device_of(chosen.device);
    *model = new tsm_model{Model::load(given(path, "path"), load), {}};
  });
}

void tsm_model_free(tsm_model* model) { delete model; }

tsm_status tsm_model_get_info(const tsm_model* model, tsm_model_info* info) {
  return guard([&] {
    const Model& m = model_of(model);
    tsm_model_info facts = TSM_MODEL_INFO_INIT;
    facts.family = family_of(m.family());
    facts.takes_tokens = m.takes_tokens();
    facts.vocab_size = m.vocab_size();
    facts.input_size = m.input_size();
    facts.output_size = m.output_size();
    facts.takes_dt = m.takes_dt();
    facts.layers = int32_t(m.layers().size());
    facts.shortest_dt = m.takes_dt() ? m.shortest_dt() : 0;
    facts.fingerprint = m.fingerprint();
    facts.dtype = dtype_of(m.weights());
    facts.threads = m.threads();
    facts.level = m.level();
    facts.device = m.device() == DeviceKind::kCuda ? TSM_CUDA : TSM_CPU;
    write_known(info, facts, "info");
  });
}

tsm_status tsm_model_get_layer_info(const tsm_model* model, int32_t layer, tsm_layer_info* info) {
  return guard([&] {
    const auto& layers = model_of(model).layers();
    check_index("layer", layer, layers.size());
    const LayerInfo& l = layers[size_t(layer)];
    tsm_layer_info facts = TSM_LAYER_INFO_INIT;
    facts.cell = l.cell.c_str();
    facts.input_size = l.input_size;
    facts.hidden_size = l.hidden_size;
    facts.states = int32_t(l.states.size());
    facts.interpreted = l.interpreted;
    write_known(info, facts, "info");
  });
}

tsm_status tsm_model_get_state_info(const tsm_model* model, int32_t layer, int32_t state,
                                    const char** name, int64_t* width) {
  return guard([&] {
    const StateInfo& info = state_info(model_of(model), layer, state);
    if (name) *name = info.name.c_str();
    if (width) *width = info.width;
  });
}

tsm_status tsm_model_get_config(const tsm_model* model, const char** text, size_t* bytes) {
  return guard([&] {
    const std::string_view config = model_of(model).config();
    given(text, "text");
    *given(bytes, "bytes") = config.size();
    *text = config.data();
  });
}

tsm_status tsm_model_get_asset(const tsm_model* model, const char* name, const void** data,
                               size_t* bytes) {
  return guard([&] {
    const std::string_view asset = model_of(model).asset(given(name, "name"));
    given(data, "data");
    *given(bytes, "bytes") = asset.size();
    *data = asset.empty() ? nullptr : asset.data();
  });
}

tsm_status tsm_stream_create(const tsm_model* model, tsm_stream** stream) {
  return guard([&] {
    given(stream, "stream");
    *stream = handle(model_of(model).create_stream());
  });
}

void tsm_stream_free(tsm_stream* stream) { delete reinterpret_cast<Stream*>(stream); }

tsm_status tsm_stream_reset(tsm_stream* stream) {
  return guard([&] { stream_of(stream).reset(); });
}

tsm_status tsm_stream_fork(const tsm_stream* stream, tsm_stream** copy) {
  return guard([&] {
    given(copy, "copy");
    *copy = handle(stream_of(stream).fork());
  });
}

tsm_status tsm_stream_get_position(const tsm_stream* stream, int64_t* steps) {
  return guard([&] { *given(steps, "steps") = Read(stream)->position(); });
}

tsm_status tsm_stream_get_time(const tsm_stream* stream, double* time) {
  return guard([&] { *given(time, "time") = Read(stream)->time(); });
}

tsm_status tsm_stream_feed_tokens(tsm_stream* stream, const int64_t* tokens, int64_t T,
                                  const float* dt, float* logits, size_t room, int last_only) {
  return feed_one(stream, tokens, nullptr, T, dt, logits, room, last_only, true);
}

tsm_status tsm_stream_feed_values(tsm_stream* stream, const float* values, int64_t T,
                                  const float* dt, float* logits, size_t room, int last_only) {
  return feed_one(stream, nullptr, values, T, dt, logits, room, last_only, false);
}

tsm_status tsm_stream_score(tsm_stream* stream, const int64_t* tokens, int64_t T, const float* dt,
                            float* log_probs) {
  return guard([&] {
    Stream& s = stream_of(stream);
    if (T > 0) given(tokens, "tokens"), given(log_probs, "log_probs");
    s.model().score(s, tokens, T, dt, log_probs);
  });
}

tsm_status tsm_stream_generate(tsm_stream* stream, int64_t n, const tsm_sampling* sampling,
                               int64_t* tokens) {
  return guard([&] {
    Stream& s = stream_of(stream);
    if (n > 0) given(tokens, "tokens");
    const Generation item = engine_generation(s, n, sampling, tokens);
    s.model().generate(&item, 1, {nullptr, nullptr, true});
  });
}

tsm_status tsm_stream_get_state(const tsm_stream* stream, int32_t layer, int32_t state,
                                float* values, size_t room) {
  return guard([&] {
    const Stream& s = stream_of(stream);
    const int64_t width = state_info(s.model(), layer, state).width;
    given(values, "values");
    require(room >= size_t(width), "room = " + std::to_string(room) +
                                       " floats; accepted: at least " + std::to_string(width));
    Read(stream)->get_state(layer, state, values);
  });
}

tsm_status tsm_stream_save(const tsm_stream* stream, void* buffer, size_t room, size_t* bytes) {
  return guard([&] {
    const Stream& s = stream_of(stream);
    const size_t needed = size_t(s.blob_bytes());
    *given(bytes, "bytes") = needed;
    if (!buffer) return;
    require(room >= needed, "room = " + std::to_string(room) + " bytes; accepted: at least " +
                                std::to_string(needed));
    s.save(static_cast<uint8_t*>(buffer));
  });
}

tsm_status tsm_stream_load(tsm_stream* stream, const void* buffer, size_t bytes) {
  return guard([&] {
    Stream& s = stream_of(stream);
    require(bytes <= size_t(std::numeric_limits<int64_t>::max()),
            "bytes = " + std::to_string(bytes) + "; accepted: the size of the buffer");
    s.load(static_cast<const uint8_t*>(given(buffer, "buffer")), int64_t(bytes));
  });
}

}  // extern "C"
