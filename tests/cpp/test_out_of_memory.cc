// Every allocation of every call fails once: the call says that memory was short and changes
// nothing, or succeeds without it; the same call then gives what it always gives. Nothing leaks.
// test_out_of_memory all: every dtype with every kind of cell and input, in `make nightly`.
// The library is loaded at run time, as a plug-in's or an interpreter's is.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "failing_memory.h"
#include "model_bytes.h"
#include "temporary_file.h"
#include "tsm/tsm.h"

namespace {

// The API, from the library that was opened.
struct Library {
  void* file = dlopen(TSM_RUNTIME_LIBRARY, RTLD_NOW | RTLD_LOCAL);

  template <class Function>
  Function* find(const char* name) const {
    void* const found = file ? dlsym(file, name) : nullptr;
    if (!found) {
      std::fprintf(stderr, "%s: %s\n", name, dlerror());
      std::exit(1);
    }
    return reinterpret_cast<Function*>(found);
  }
};
const Library library;
#define TSM_FIND(name) const auto name = library.find<decltype(::name)>(#name)
namespace api {
TSM_FIND(tsm_last_error);
TSM_FIND(tsm_model_load);
TSM_FIND(tsm_model_free);
TSM_FIND(tsm_model_feed_many);
TSM_FIND(tsm_model_encode);
TSM_FIND(tsm_model_decode);
TSM_FIND(tsm_model_generate_many);
TSM_FIND(tsm_stream_create);
TSM_FIND(tsm_stream_free);
TSM_FIND(tsm_stream_fork);
TSM_FIND(tsm_stream_reset);
TSM_FIND(tsm_stream_feed_tokens);
TSM_FIND(tsm_stream_feed_values);
TSM_FIND(tsm_stream_score);
TSM_FIND(tsm_stream_generate);
TSM_FIND(tsm_stream_get_state);
TSM_FIND(tsm_stream_save);
TSM_FIND(tsm_stream_load);
}  // namespace api

constexpr int64_t kSteps = 5, kStreams = 3;
constexpr int64_t kTokens[kSteps] = {3, 1, 4, 1, 5};

struct Setting {
  sample::Spec spec;
  tsm_dtype dtype = TSM_FLOAT32;
  int threads = 1;
  bool own_thread = false;  // each call is the first of its thread
};

// A model that nobody has used yet, its streams somewhere on their way, and room for all outputs.
struct Scene {
  const Setting& setting;
  const std::string& path;
  tsm_model* model = nullptr;
  tsm_stream* streams[kStreams] = {};
  tsm_stream* made = nullptr;  // by the call under test
  std::vector<float> values, logits, scores, state;
  std::vector<int64_t> drawn;
  std::vector<uint8_t> blob, fresh;  // fresh: a stream's that was not fed

  int64_t width() const { return setting.spec.C ? setting.spec.C : setting.spec.V; }
  bool tokens() const { return setting.spec.input != "values"; }

  Scene(const Setting& setting, const std::string& path) : setting(setting), path(path) {
    values.assign(size_t(kSteps * setting.spec.I), 0.25f);
    logits.assign(size_t(kStreams * kSteps * width()), 0);
    scores.assign(size_t(kStreams * kSteps), 0);
    state.assign(size_t(setting.spec.H), 0);
    drawn.assign(size_t(2 * kStreams), 0);
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
    tsm_chunk chunks[kStreams];
    for (int64_t i = 0; i < kStreams; ++i) {
      chunks[i] = TSM_CHUNK_INIT;
      chunks[i].stream = streams[i];
      chunks[i].tokens = tokens() ? kTokens : nullptr;
      chunks[i].values = tokens() ? nullptr : values.data();
      chunks[i].T = kSteps - i;
      chunks[i].logits = &logits[size_t(i * kSteps * width())];
      chunks[i].room = size_t(kSteps * width());
      if (setting.spec.family == "lm") chunks[i].log_probs = &scores[size_t(i * kSteps)];
    }
    return api::tsm_model_feed_many(model, chunks, kStreams, call);
  }
  tsm_status generate_many() {
    tsm_generation items[kStreams];
    tsm_sampling sampling[kStreams];
    for (int64_t i = 0; i < kStreams; ++i) {
      sampling[i] = TSM_SAMPLING_INIT;
      sampling[i].top_k = 1 + i;
      items[i] = TSM_GENERATION_INIT;
      items[i].stream = streams[i];
      items[i].n = 1 + i % 2;
      items[i].tokens = &drawn[size_t(2 * i)];
      items[i].sampling = &sampling[i];
    }
    return api::tsm_model_generate_many(model, items, kStreams, nullptr);
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

bool any(const Setting&) { return true; }
bool of_tokens(const Setting& setting) { return setting.spec.input != "values"; }
bool language_model(const Setting& setting) { return setting.spec.family == "lm"; }

const Call kCalls[] = {
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
       tsm_failure failures[kStreams];
       tsm_call call = TSM_CALL_INIT;
       call.failures = failures;
       tsm_stream* const other = std::exchange(s.streams[1], s.streams[0]);
       const tsm_status status = s.feed_many(&call);
       s.streams[1] = other;
       if (status == TSM_OK && failures[1].status != TSM_INVALID_ARGUMENT) return TSM_INTERNAL;
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

// The call while allocation n (and with `onward` all later ones) fails.
tsm_status run_failing(const Call& call, Scene& scene, int64_t n, bool onward, bool* fired) {
  tsm_status status = TSM_OK;
  const auto run = [&] {
    failing::arm(n, onward);
    status = call.run(scene);
    *fired = failing::disarm();
    // One that had no room for its message says nothing.
    CHECK(status == TSM_OK || *fired || api::tsm_last_error()[0] != 0);
  };
  if (scene.setting.own_thread)
    std::thread(run).join();
  else
    run();
  return status;
}

int64_t points = 0, refused = 0;

// One point; false when the call has fewer allocations than n.
bool test_point(const Call& call, const Setting& setting, const std::string& path,
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
    const int failures = check::failures;
    CHECK(status == call.expected || (fired && status == TSM_OUT_OF_MEMORY));
    if (status == TSM_OUT_OF_MEMORY) {
      ++refused;
      CHECK(!scene.made);
      CHECK(scene.states() == before);
      status = call.run(scene);
      CHECK(status == call.expected);
    }
    if (call.expected == TSM_OK) CHECK(scene.same_outputs(reference));
    CHECK(scene.states() == after);
    if (check::failures > failures)
      std::fprintf(stderr, "  in %s, cell %s, dtype %d, allocation %lld%s: status %d\n", call.name,
                   setting.spec.cell.name.c_str(), int(setting.dtype), static_cast<long long>(n),
                   onward ? " and later" : "", int(status));
  }
  points += fired;
  // The system keeps some memory of threads that have ended, and libraries some of the first call.
  const bool counts = n > 1 && setting.threads == 1 && !setting.own_thread;
  if (counts && failing::live.load() > live) {
    std::fprintf(stderr, "  %lld blocks leak in %s, cell %s, allocation %lld%s\n",
                 static_cast<long long>(failing::live.load() - live), call.name,
                 setting.spec.cell.name.c_str(), static_cast<long long>(n),
                 onward ? " and later" : "");
    CHECK(false);
  }
  return fired;
}

void test_setting(const Setting& setting) {
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

}  // namespace

int main(int argc, char** argv) {
  const bool everything = argc > 1 && std::string(argv[1]) == "all";
  const auto test = [](tsm_dtype dtype, const sample::Cell& cell, const char* input = "tokens",
                       int threads = 1, bool own_thread = false) {
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
    setting.threads = threads;
    setting.own_thread = own_thread;
    test_setting(setting);
  };
  test(TSM_FLOAT32, sample::lstm(), "tokens", 2, true);
  test(TSM_FLOAT32, sample::leaky(), "one_hot");
  test(TSM_BFLOAT16, sample::lstm(), "values");
  test(TSM_INT8, sample::nru());
  if (everything) {
    for (const tsm_dtype dtype : {TSM_FLOAT32, TSM_BFLOAT16, TSM_INT8}) {
      for (const auto& cell : {sample::plstm(), sample::lstm(), sample::leaky(), sample::nru()}) {
        for (const char* input : {"tokens", "one_hot", "values"}) test(dtype, cell, input);
      }
    }
  }
  std::printf("%lld allocations failed, %lld calls said so\n", static_cast<long long>(points),
              static_cast<long long>(refused));
  CHECK(points > 1000);
  return check::result();
}
