// Every allocation of every call of the C API fails once: the call reports that it is out of memory
// and changes nothing, or succeeds anyway; when repeated, the call gives its usual result. Nothing
// leaks. The including file chooses what fails (failing_memory.h, failing_cuda.h).
#pragma once
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "called_api.h"
#include "failing.h"
#include "support/check.h"
#include "support/model_bytes.h"
#include "support/temporary_file.h"

namespace calls {

constexpr int64_t kSteps = 5;
constexpr int64_t kTokens[kSteps] = {3, 1, 4, 1, 5};

struct Setting {
  sample::Spec spec;
  tsm_dtype dtype = TSM_FLOAT32;
  int threads = 1;
  bool own_thread = false;  // each call is the first one in its thread
  tsm_device device = TSM_CPU;
  size_t streams = 3;
};

// An unused model, streams at various positions, and buffers for all outputs.
struct Scene {
  const Setting& setting;
  const std::string& path;
  tsm_model* model = nullptr;
  std::vector<tsm_stream*> streams;
  tsm_stream* made = nullptr;  // by the call under test
  std::vector<float> values, logits, scores, state;
  std::vector<int64_t> drawn;
  std::vector<uint8_t> blob, fresh;  // fresh: that of a stream that was not fed
  // Arguments of calls, created here so that a call under test allocates only its own memory.
  std::vector<tsm_chunk> chunks;
  std::vector<tsm_failure> failures;
  std::vector<tsm_generation> items;
  std::vector<tsm_sampling> samplings;

  int64_t width() const { return setting.spec.C ? setting.spec.C : setting.spec.V; }
  bool tokens() const { return setting.spec.input != "values"; }

  Scene(const Setting& setting, const std::string& path)
      : setting(setting),
        path(path),
        streams(setting.streams),
        chunks(setting.streams),
        failures(setting.streams),
        items(setting.streams),
        samplings(setting.streams) {
    values.assign(size_t(kSteps * setting.spec.I), 0.25f);
    logits.assign(setting.streams * size_t(kSteps * width()), 0);
    scores.assign(setting.streams * size_t(kSteps), 0);
    state.assign(size_t(setting.spec.H), 0);
    drawn.assign(2 * setting.streams, 0);
    size_t bytes = 0;
    CHECK(load(&model) == TSM_OK);
    for (tsm_stream*& stream : streams) CHECK(api::tsm_stream_create(model, &stream) == TSM_OK);
    CHECK(api::tsm_stream_save(streams[0], nullptr, 0, &bytes) == TSM_OK);
    blob.assign(bytes, 0);
    fresh = saved(streams[0]);
  }
  ~Scene() {
    for (tsm_stream* stream : streams) api::tsm_stream_free(stream);
    api::tsm_stream_free(made);
    api::tsm_model_free(model);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  tsm_status load(tsm_model** loaded) const {
    tsm_load_options options = TSM_LOAD_OPTIONS_INIT;
    options.dtype = setting.dtype;
    options.threads = setting.threads;
    options.device = setting.device;
    return api::tsm_model_load(path.c_str(), &options, loaded);
  }
  tsm_status feed() {
    float* out = logits.data();
    if (tokens())
      return api::tsm_stream_feed_tokens(streams[0], kTokens, kSteps, nullptr, out, logits.size(),
                                         0);
    return api::tsm_stream_feed_values(streams[0], values.data(), kSteps, nullptr, out,
                                       logits.size(), 0);
  }
  tsm_status feed_many(const tsm_call* call = nullptr) {
    for (size_t i = 0; i < streams.size(); ++i) {
      chunks[i] = TSM_CHUNK_INIT;
      chunks[i].stream = streams[i];
      chunks[i].tokens = tokens() ? kTokens : nullptr;
      chunks[i].values = tokens() ? nullptr : values.data();
      chunks[i].T = kSteps - int64_t(i) % kSteps;
      chunks[i].logits = &logits[i * size_t(kSteps * width())];
      chunks[i].room = size_t(kSteps * width());
      if (setting.spec.family == "lm") chunks[i].log_probs = &scores[i * size_t(kSteps)];
    }
    return api::tsm_model_feed_many(model, chunks.data(), int64_t(chunks.size()), call);
  }
  tsm_status generate_many() {
    for (size_t i = 0; i < streams.size(); ++i) {
      samplings[i] = TSM_SAMPLING_INIT;
      samplings[i].top_k = 1 + int64_t(i) % width();
      items[i] = TSM_GENERATION_INIT;
      items[i].stream = streams[i];
      items[i].n = 1 + int64_t(i) % 2;
      items[i].tokens = &drawn[2 * i];
      items[i].sampling = &samplings[i];
    }
    return api::tsm_model_generate_many(model, items.data(), int64_t(items.size()), nullptr);
  }
  // The whole life of a pool. If the pool's own thread runs out of memory, an event reports it.
  tsm_status use_pool() {
    tsm_pool* pool = nullptr;
    tsm_status status = api::tsm_pool_create(model, nullptr, &pool);
    if (status != TSM_OK) return status;
    status = ask(pool);
    api::tsm_pool_free(pool);
    return status;
  }
  tsm_status ask(tsm_pool* pool) {
    tsm_pool_input input = TSM_POOL_INPUT_INIT;
    tsm_pool_draw draw = TSM_POOL_DRAW_INIT;
    tsm_pool_terms terms = TSM_POOL_TERMS_INIT;
    uint64_t feeds = 0, draws = 0;
    input.tokens = tokens() ? kTokens : nullptr;
    input.values = tokens() ? nullptr : values.data();
    input.T = kSteps;
    input.logits = TSM_POOL_ALL_LOGITS;
    draw.n = 3;
    draw.progress = 1;
    terms.save = 1;
    tsm_status status = api::tsm_pool_put(pool, "key", 3, fresh.data(), fresh.size());
    if (status == TSM_OK) status = api::tsm_pool_feed(pool, "key", 3, &input, &terms, &feeds);
    if (status == TSM_OK && setting.spec.family == "lm")
      status = api::tsm_pool_generate(pool, "key", 3, &draw, nullptr, &draws);
    for (size_t left = 1 + (draws != 0); status == TSM_OK && left > 0;) {
      tsm_pool_event event = TSM_POOL_EVENT_INIT;
      size_t count = 0;
      status = api::tsm_pool_take(pool, &event, 1, -1, &count);
      if (status != TSM_OK) break;
      status = tsm_status(event.status);
      left -= event.kind == TSM_POOL_DONE;
      // A feed that fails leaves its stream where it was. On a GPU, saving may fail after the feed.
      const bool moved = event.ticket == feeds && event.position != 0;
      if (status != TSM_OK && moved && setting.device == TSM_CPU) status = TSM_INTERNAL;
      if (status == TSM_OK && event.ticket == feeds) {
        std::copy(event.logits, event.logits + event.logit_count, logits.begin());
        const auto* const bytes = static_cast<const uint8_t*>(event.blob);
        std::copy(bytes, bytes + event.blob_bytes, blob.begin());
      } else if (status == TSM_OK && event.kind == TSM_POOL_DONE) {
        std::copy(event.tokens, event.tokens + event.token_count, drawn.begin());
      }
      api::tsm_pool_release(pool, &event, 1);
    }
    return status;
  }
  std::vector<uint8_t> saved(const tsm_stream* stream) const {
    std::vector<uint8_t> bytes(blob.size());
    size_t written = 0;
    CHECK(api::tsm_stream_save(stream, bytes.data(), bytes.size(), &written) == TSM_OK);
    return bytes;
  }
  // All that a call can change.
  std::vector<std::vector<uint8_t>> states() const {
    std::vector<std::vector<uint8_t>> all;
    for (const tsm_stream* stream : streams) all.push_back(saved(stream));
    if (made) all.push_back(saved(made));
    return all;
  }
  bool same_outputs(const Scene& other) const {
    return logits == other.logits && scores == other.scores && state == other.state &&
           drawn == other.drawn && blob == other.blob;
  }
};

struct Call {
  const char* name;
  tsm_status expected;  // where memory suffices
  bool (*fits)(const Setting& setting);
  tsm_status (*run)(Scene& scene);
};

inline bool any(const Setting&) { return true; }
inline bool of_tokens(const Setting& setting) { return setting.spec.input != "values"; }
inline bool language_model(const Setting& setting) { return setting.spec.family == "lm"; }

inline const Call kCalls[] = {
    {"load", TSM_OK, any,
     [](Scene& s) {
       tsm_model* model = nullptr;
       const tsm_status status = s.load(&model);
       if ((status == TSM_OK) != (model != nullptr)) return TSM_INTERNAL;
       api::tsm_model_free(model);
       return status;
     }},
    {"load of a file that is none", TSM_BAD_FILE, any,
     [](Scene&) {
       tsm_model* model = nullptr;
       return api::tsm_model_load("/dev/null", nullptr, &model);
     }},
    {"create", TSM_OK, any, [](Scene& s) { return api::tsm_stream_create(s.model, &s.made); }},
    {"fork", TSM_OK, any, [](Scene& s) { return api::tsm_stream_fork(s.streams[0], &s.made); }},
    {"reset", TSM_OK, any, [](Scene& s) { return api::tsm_stream_reset(s.streams[0]); }},
    {"feed", TSM_OK, any, [](Scene& s) { return s.feed(); }},
    {"feed_many", TSM_OK, any, [](Scene& s) { return s.feed_many(); }},
    {"feed_many of a stream twice", TSM_INVALID_ARGUMENT, any,
     [](Scene& s) {
       tsm_stream* const other = std::exchange(s.streams[1], s.streams[0]);
       const tsm_status status = s.feed_many();
       s.streams[1] = other;
       return status;
     }},
    {"feed_many of a stream twice, refused by itself", TSM_OK, any,
     [](Scene& s) {
       tsm_call call = TSM_CALL_INIT;
       call.failures = s.failures.data();
       tsm_stream* const other = std::exchange(s.streams[1], s.streams[0]);
       const tsm_status status = s.feed_many(&call);
       s.streams[1] = other;
       if (status == TSM_OK && s.failures[1].status != TSM_INVALID_ARGUMENT) return TSM_INTERNAL;
       return status;
     }},
    {"generate_many", TSM_OK, language_model, [](Scene& s) { return s.generate_many(); }},
    {"score", TSM_OK, language_model,
     [](Scene& s) {
       return api::tsm_stream_score(s.streams[0], kTokens, kSteps, nullptr, s.scores.data());
     }},
    {"score of a token that is none", TSM_INVALID_ARGUMENT, language_model,
     [](Scene& s) {
       const int64_t tokens[] = {1, 1000};
       return api::tsm_stream_score(s.streams[0], tokens, 2, nullptr, s.scores.data());
     }},
    {"generate", TSM_OK, language_model,
     [](Scene& s) {
       tsm_sampling sampling = TSM_SAMPLING_INIT;
       sampling.top_k = 4;
       sampling.top_p = 0.9;
       return api::tsm_stream_generate(s.streams[0], kSteps, &sampling, s.drawn.data());
     }},
    {"encode", TSM_OK, of_tokens,
     [](Scene& s) {
       size_t count = 0;
       return api::tsm_model_encode(s.model, "a b\n", 4, s.drawn.data(), s.drawn.size(), &count);
     }},
    {"encode of what is no text", TSM_INVALID_ARGUMENT, of_tokens,
     [](Scene& s) {
       size_t count = 0;
       return api::tsm_model_encode(s.model, "\xff", 1, nullptr, 0, &count);
     }},
    {"decode", TSM_OK, of_tokens,
     [](Scene& s) {
       size_t bytes = 0;
       char text[16];
       const int64_t tokens[] = {2, 0, 1};
       return api::tsm_model_decode(s.model, tokens, 3, text, sizeof text, &bytes);
     }},
    {"a pool", TSM_OK, any, [](Scene& s) { return s.use_pool(); }},
    {"get_state", TSM_OK, any,
     [](Scene& s) {
       return api::tsm_stream_get_state(s.streams[0], 0, 0, s.state.data(), s.state.size());
     }},
    {"save", TSM_OK, any,
     [](Scene& s) {
       size_t bytes = 0;
       return api::tsm_stream_save(s.streams[0], s.blob.data(), s.blob.size(), &bytes);
     }},
    {"load_state", TSM_OK, any,
     [](Scene& s) { return api::tsm_stream_load(s.streams[0], s.fresh.data(), s.fresh.size()); }},
    {"load_state of nothing", TSM_BAD_STATE, any,
     [](Scene& s) { return api::tsm_stream_load(s.streams[0], s.drawn.data(), 40); }},
};

// Runs the call while allocation n fails (with `onward`, also all later ones).
inline tsm_status run_failing(const Call& call, Scene& scene, int64_t n, bool onward, bool* fired) {
  tsm_status status = TSM_OK;
  const auto run = [&] {
    failing::arm(n, onward);
    status = call.run(scene);
    *fired = failing::disarm();
    // A call that has no memory for its error message leaves no message.
    CHECK((status == TSM_OK || *fired || api::tsm_last_error()[0] != 0));
  };
  if (scene.setting.own_thread)
    std::thread(run).join();
  else
    run();
  return status;
}

inline int64_t points = 0, refused = 0;

// Tests one failing allocation; returns false if the call makes fewer than n allocations.
inline bool test_point(const Call& call, const Setting& setting, const std::string& path,
                       const std::vector<uint8_t>& start, const Scene& reference,
                       const std::vector<std::vector<uint8_t>>& after, int64_t n, bool onward) {
  const int64_t live = failing::live.load();
  bool fired = false;
  {
    Scene scene(setting, path);
    for (tsm_stream* stream : scene.streams)
      CHECK(api::tsm_stream_load(stream, start.data(), start.size()) == TSM_OK);
    const auto before = scene.states();
    tsm_status status = run_failing(call, scene, n, onward, &fired);
    INFO(call.name, ", cell ", setting.spec.cell.name, ", dtype ", int(setting.dtype),
         ", allocation ", n, onward ? " and later" : "", ": status ", int(status));
    CHECK((status == call.expected || (fired && status == TSM_OUT_OF_MEMORY)));
    if (status == TSM_OUT_OF_MEMORY) {
      ++refused;
      CHECK(!scene.made);
      CHECK(scene.states() == before);
      status = call.run(scene);
      CHECK(status == call.expected);
    }
    if (call.expected == TSM_OK) CHECK(scene.same_outputs(reference));
    CHECK(scene.states() == after);
  }
  points += fired;
  // Not counted as leaks: memory that the system keeps for finished threads, and that libraries
  // keep after the first call.
  const bool counts = n > 1 && setting.threads == 1 && !setting.own_thread;
  if (counts && failing::live.load() > live)
    FAIL_CHECK((failing::live.load() - live), " blocks leak in ", call.name, ", cell ",
               setting.spec.cell.name, ", allocation ", n, onward ? " and later" : "");
  return fired;
}

inline void test_setting(const Setting& setting) {
  const sample::Writer writer(setting.spec);
  const auto bytes = writer.file();
  const TemporaryFile file(bytes.data(), writer.size);
  std::vector<uint8_t> start;
  {
    Scene scene(setting, file.path());
    CHECK(scene.feed() == TSM_OK);
    start = scene.saved(scene.streams[0]);
  }
  for (const Call& call : kCalls) {
    if (!call.fits(setting)) continue;
    Scene reference(setting, file.path());
    for (tsm_stream* stream : reference.streams)
      CHECK(api::tsm_stream_load(stream, start.data(), start.size()) == TSM_OK);
    CHECK(call.run(reference) == call.expected);
    const auto after = reference.states();
    for (const bool onward : {false, true}) {
      int64_t n = 1;
      while (test_point(call, setting, file.path(), start, reference, after, n, onward)) ++n;
    }
  }
}

// A setting with a model of this weight type, cell and input.
inline Setting setting_of(tsm_dtype dtype, const sample::Cell& cell, const char* input) {
  Setting setting;
  setting.spec.cell = cell;
  setting.spec.input = input;
  setting.spec.family = setting.spec.input == "values" ? "classifier" : "lm";
  setting.spec.dtype = dtype == TSM_FLOAT32 ? "F32" : dtype == TSM_BFLOAT16 ? "BF16" : "I8";
  setting.spec.scale = 0.2f;
  setting.spec.tokenizer = setting.spec.input == "one_hot" ? "review" : "word";
  setting.spec.dictionary = "<unk> 1\n<eos> 1\na 1\n";
  setting.spec.layers = 1;
  setting.dtype = dtype;
  return setting;
}

// What came of all settings.
inline void check_points() {
  std::printf("%lld allocations failed, %lld calls said so\n", static_cast<long long>(points),
              static_cast<long long>(refused));
  CHECK(points > 1000);
}

}  // namespace calls
