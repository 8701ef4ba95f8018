// Streams over models of every kind: the same bits for any chunks, batch and number of threads, at
// every level of the host and with every kind of weights; errors change nothing.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "engine/stream.h"
#include "model_bytes.h"

using tsm::Chunk;
using tsm::ErrorKind;
using tsm::Level;
using tsm::LoadOptions;
using tsm::Model;
using tsm::Stream;
using tsm::Weights;

namespace {

constexpr Weights kAll[] = {Weights::kFloat32, Weights::kBFloat16, Weights::kInt8};

struct Made {
  std::shared_ptr<const Model> model;
};

Made make(const sample::Spec& spec, Weights weights = Weights::kFloat32,
          const Level* level = nullptr, int threads = 1) {
  const sample::Writer writer(spec);
  std::vector<uint64_t> bytes = writer.file();
  LoadOptions options;
  options.weights = weights;
  options.threads = threads;
  options.level = level;
  const Made made{Model::from_memory(bytes.data(), writer.size, "sample", options)};
  std::fill(bytes.begin(), bytes.end(), ~uint64_t(0));  // a loaded model does not need its file
  return made;
}

// The inputs of one stream.
struct Input {
  std::vector<int64_t> tokens;
  std::vector<float> values, dt;
  int64_t width = 0;

  Input(const Model& model, int64_t steps, uint64_t seed) : width(model.input_size()) {
    sample::Random random(seed);
    for (int64_t t = 0; t < steps; ++t) {
      if (model.takes_tokens()) tokens.push_back(random.below(model.vocab_size()));
      for (int64_t i = 0; i < width; ++i) values.push_back(random.between(-2, 2));
      if (model.takes_dt()) dt.push_back(random.between(0.1f, 3.0f));
    }
  }
  Chunk chunk(Stream& stream, int64_t first, int64_t last, float* logits) const {
    Chunk c;
    c.stream = &stream;
    c.tokens = tokens.empty() ? nullptr : tokens.data() + first;
    c.values = values.empty() ? nullptr : values.data() + first * width;
    c.dt = dt.empty() ? nullptr : dt.data() + first;
    c.steps = last - first;
    c.logits = logits;
    return c;
  }
};

// Everything that a stream is.
std::vector<uint8_t> all_of(const Stream& stream) { return stream.save(); }

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

double largest_gap(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double gap = std::fabs(double(a[i]) - double(b[i]));
    if (!(gap <= largest)) largest = gap;
  }
  return largest;
}

template <class Function>
void refused(ErrorKind kind, const char* part, const Function& f) {
  try {
    f();
  } catch (const tsm::Error& error) {
    CHECK(error.kind == kind);
    if (std::string(error.what()).find(part) == std::string::npos) {
      std::fprintf(stderr, "message: %s; expected in it: %s\n", error.what(), part);
      CHECK(false);
    }
    return;
  }
  std::fprintf(stderr, "nothing was thrown; expected: %s\n", part);
  CHECK(false);
}

// One stream after the other, all steps at once, against ragged batches in random chunks.
void test_chunks(const sample::Spec& spec, Weights weights, const Level* level) {
  constexpr int64_t N = 70, T = 33;  // more streams than a group holds
  const Made made = make(spec, weights, level), threaded = make(spec, weights, level, 3);
  const int64_t V = made.model->output_size();
  std::vector<std::vector<float>> expected(N, std::vector<float>(size_t(T * V)));
  std::vector<std::vector<uint8_t>> ends;
  std::vector<Input> inputs;
  for (int64_t i = 0; i < N; ++i) {
    inputs.emplace_back(*made.model, T, uint64_t(100 + i));
    const auto stream = made.model->create_stream();
    const Chunk chunk = inputs.back().chunk(*stream, 0, T, expected[size_t(i)].data());
    made.model->feed(&chunk, 1);
    ends.push_back(all_of(*stream));
    CHECK(stream->position() == T);
  }
  for (const Made* use : {&made, &threaded}) {
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::vector<float>> logits(N, std::vector<float>(size_t(T * V)));
    std::vector<int64_t> done(N, 0);
    for (int64_t i = 0; i < N; ++i) streams.push_back(use->model->create_stream());
    sample::Random random(7);
    for (bool more = true; more;) {
      std::vector<Chunk> chunks;
      more = false;
      for (int64_t i = 0; i < N; ++i) {
        const int64_t left = T - done[size_t(i)];
        const int64_t steps = std::min(left, random.below(12));
        more = more || left > steps;
        if (random.below(4) == 0) {  // not in this batch
          more = more || left > 0;
          continue;
        }
        chunks.push_back(inputs[size_t(i)].chunk(*streams[size_t(i)], done[size_t(i)],
                                                 done[size_t(i)] + steps,
                                                 logits[size_t(i)].data() + done[size_t(i)] * V));
        done[size_t(i)] += steps;
      }
      use->model->feed(chunks.data(), int64_t(chunks.size()));
    }
    for (int64_t i = 0; i < N; ++i) {
      CHECK(same(logits[size_t(i)], expected[size_t(i)]));
      CHECK(all_of(*streams[size_t(i)]) == ends[size_t(i)]);
    }
  }
}

void test_all_chunks() {
  std::vector<sample::Spec> specs;
  for (const sample::Cell& cell :
       {sample::plstm(), sample::lstm(), sample::leaky(), sample::nru()}) {
    sample::Spec spec;
    spec.cell = cell;
    specs.push_back(spec);
  }
  specs.emplace_back().input = "one_hot";
  for (int64_t width : {5, 16, 48}) {  // whole registers: float32 rows are read where they lie
    specs.emplace_back().input = "values";
    specs.back().family = "tagger";
    specs.back().I = width;
    if (width == 48) specs.back().cell = sample::nru();
  }
  specs.emplace_back().tied = true;
  specs.back().I = specs.back().H;
  specs.emplace_back().dtype = "BF16";
  specs.emplace_back().dtype = "I8";
  specs.emplace_back().cell = sample::nru();
  specs.back().layer_norm = true;
  // Wide enough for threads to share products and cells.
  specs.emplace_back().H = 152;
  specs.back().layers = 1;
  specs.back().V = 700;
  for (const sample::Spec& spec : specs) {
    for (const Level* level : tsm::host_levels()) {
      for (const Weights weights : kAll) test_chunks(spec, weights, level);
    }
  }
}

// A chunk of several slices that is read where it lies, at an odd address and up to the end of its
// memory, against one of two streams, whose rows are copied.
void test_rows_where_they_lie() {
  constexpr int64_t T = 600;
  for (const sample::Cell& cell : {sample::plstm(), sample::nru()}) {
    for (const Level* level : tsm::host_levels()) {
      sample::Spec spec;
      spec.cell = cell;
      spec.family = "tagger";
      spec.input = "values";
      spec.I = 32;
      spec.scale = 0.1f;  // nru has no bounds
      const Made made = make(spec, Weights::kFloat32, level);
      const Input input(*made.model, T, 9);
      const auto alone = made.model->create_stream(), one = made.model->create_stream(),
                 two = made.model->create_stream();
      const size_t size = size_t(T * made.model->output_size());
      std::vector<float> found(size), expected(size), other(size), odd(input.values.size() + 1);
      std::copy(input.values.begin(), input.values.end(), odd.begin() + 1);
      Chunk chunk = input.chunk(*alone, 0, T, found.data());
      chunk.values = odd.data() + 1;
      made.model->feed(&chunk, 1);
      const Chunk both[] = {input.chunk(*one, 0, T, expected.data()),
                            input.chunk(*two, 0, T, other.data())};
      made.model->feed(both, 2);
      CHECK(same(found, expected));
      CHECK(all_of(*alone) == all_of(*one));
    }
  }
}

void test_compiled_or_interpreted() {
  for (const Level* level : tsm::host_levels()) {
    sample::Spec spec;
    CHECK(!make(spec, Weights::kFloat32, level).model->layers()[0].interpreted);
    // The same formula under another name is still the compiled one.
    spec.cell.name = "mine";
    CHECK(!make(spec, Weights::kFloat32, level).model->layers()[0].interpreted);
    // Another formula under a known name is not.
    spec.cell = sample::plstm();
    const size_t at = spec.cell.program.find("[\"tanh\",\"z.g\"]");
    spec.cell.program.replace(at, 14, "[\"sigmoid\",\"z.g\"]");
    const Made changed = make(spec, Weights::kFloat32, level);
    CHECK(changed.model->layers()[0].interpreted);
    // And gives other numbers; the interpreter agrees with the compiled cell on the same formula.
    spec.cell = sample::plstm();
    // 1 * h, so that the hash differs and the value does not.
    spec.cell.program.replace(spec.cell.program.find("\"h\":19"), 6, "\"h\":20");
    spec.cell.program.replace(spec.cell.program.find("[\"mul\",17,18]]"), 14,
                              "[\"mul\",17,18],[\"mul\",19,{\"value\":1.0}]]");
    const Made twin = make(spec, Weights::kFloat32, level),
               own = make({}, Weights::kFloat32, level);
    CHECK(twin.model->layers()[0].interpreted);
    const Input input(*own.model, 20, 5);
    std::vector<float> a(20 * 11), b(20 * 11), c(20 * 11);
    for (auto [made, out] : {std::pair{&own, &a}, std::pair{&twin, &b}, std::pair{&changed, &c}}) {
      const auto stream = made->model->create_stream();
      const Chunk chunk = input.chunk(*stream, 0, 20, out->data());
      made->model->feed(&chunk, 1);
    }
    const double apart = largest_gap(a, b), changed_by = largest_gap(a, c);
    CHECK(apart < 1e-5);
    CHECK(changed_by > 1e-3);
  }
}

void test_score_and_generate() {
  for (const Weights weights : kAll) {
    const Made made = make({}, weights);
    const Model& model = *made.model;
    constexpr int64_t T = 300;  // more than a slice
    const int64_t V = model.output_size();
    const Input input(model, T, 3);
    std::vector<float> logits(size_t((T + 1) * V)), scores(T), pieces(T);
    const auto a = model.create_stream(), b = model.create_stream(), c = model.create_stream();
    Chunk none = input.chunk(*a, 0, 0, logits.data());
    none.last_only = true;  // of the state before anything
    model.feed(&none, 1);
    const Chunk whole = input.chunk(*a, 0, T, logits.data() + V);
    model.feed(&whole, 1);
    model.score(*b, input.tokens.data(), T, input.dt.data(), scores.data());
    for (int64_t first = 0; first < T;) {
      const int64_t last = std::min(T, first + 1 + first % 17);
      model.score(*c, input.tokens.data() + first, last - first, input.dt.data() + first,
                  pieces.data() + first);
      first = last;
    }
    CHECK(same(scores, pieces));
    CHECK(all_of(*a) == all_of(*b));
    CHECK(all_of(*a) == all_of(*c));
    for (int64_t t = 0; t < T; ++t) {
      const float* row = logits.data() + t * V;
      double sum = 0;
      for (int64_t i = 0; i < V; ++i) sum += std::exp(double(row[i]));
      CHECK_CLOSE(scores[size_t(t)], double(row[input.tokens[size_t(t)]]) - std::log(sum), 2e-6);
    }
    // Generating stands where feeding the tokens would, in one call or in two.
    tsm::Sampling sampling;
    sampling.seed = 9;
    const auto d = b->fork(), e = b->fork(), f = b->fork();
    std::vector<int64_t> tokens(20), again(20);
    d->generate(20, sampling, tokens.data());
    e->generate(7, sampling, again.data());
    e->generate(13, sampling, again.data() + 7);
    CHECK(tokens == again);
    Chunk fed;
    fed.stream = f.get();
    fed.tokens = tokens.data();
    fed.steps = 20;
    model.feed(&fed, 1);
    CHECK(all_of(*d) == all_of(*e));
    CHECK(all_of(*d) == all_of(*f));
    CHECK(d->position() == T + 20);
    // Temperature 0 takes the largest; so does top_k = 1.
    const auto g = b->fork(), h = b->fork();
    sampling.temperature = 0;
    g->generate(20, sampling, tokens.data());
    int64_t best = 0;
    for (int64_t i = 1; i < V; ++i) {
      if (logits[size_t(T * V + i)] > logits[size_t(T * V + best)]) best = i;
    }
    CHECK(tokens[0] == best);
    sampling.temperature = 2;
    sampling.top_k = 1;
    h->generate(20, sampling, again.data());
    CHECK(tokens == again);
  }
}

void test_sampling_follows_the_probabilities() {
  sample::Spec spec;
  spec.V = 5;
  const Made made = make(spec);
  const auto stream = made.model->create_stream();
  std::vector<float> logits(5);
  Chunk none;
  none.stream = stream.get();
  none.logits = logits.data();
  none.last_only = true;
  made.model->feed(&none, 1);
  double p[5], total = 0;
  for (int i = 0; i < 5; ++i) total += p[i] = std::exp(double(logits[size_t(i)]) / 0.7);
  int order[5] = {0, 1, 2, 3, 4};
  std::sort(order, order + 5, [&](int a, int b) { return p[a] > p[b]; });
  constexpr int kDraws = 20000;
  for (const int kept : {5, 3, 2}) {
    tsm::Sampling sampling;
    sampling.temperature = 0.7;
    double mass = 0;
    for (int i = 0; i < kept; ++i) mass += p[order[i]];
    if (kept == 3) sampling.top_k = 3;
    if (kept == 2) sampling.top_p = (p[order[0]] + p[order[1]] * 0.5) / total;
    int counts[5] = {};
    for (int i = 0; i < kDraws; ++i) {
      int64_t token;
      sampling.seed = uint64_t(i);
      stream->reset();
      stream->generate(1, sampling, &token);
      ++counts[token];
    }
    for (int i = 0; i < 5; ++i) {
      const double expected = i < kept ? p[order[i]] / mass : 0;
      // Five standard deviations of a share of kDraws.
      const double allowed = 5 * std::sqrt(expected * (1 - expected) / kDraws);
      CHECK(std::fabs(double(counts[order[i]]) / kDraws - expected) <= allowed);
    }
  }
}

void test_save_load_fork_reset() {
  const Made made = make({});
  const Model& model = *made.model;
  const Input input(model, 40, 2);
  const auto a = model.create_stream(), b = model.create_stream();
  const auto fresh = all_of(*a);
  Chunk chunk = input.chunk(*a, 0, 25, nullptr);
  model.feed(&chunk, 1);
  const auto blob = a->save();
  CHECK(int64_t(blob.size()) == a->blob_bytes());
  b->load(blob.data(), int64_t(blob.size()));
  const auto c = a->fork();
  CHECK(b->position() == 25 && c->position() == 25);
  CHECK(b->time() == a->time() && a->time() > 2.5);
  for (Stream* stream : {a.get(), b.get(), c.get()}) {
    chunk = input.chunk(*stream, 25, 40, nullptr);
    model.feed(&chunk, 1);
  }
  CHECK(all_of(*a) == all_of(*b));
  CHECK(all_of(*a) == all_of(*c));
  a->reset();
  CHECK(all_of(*a) == fresh);
  // Damage of any byte is noticed, and the stream stays as it was.
  const auto before = all_of(*b);
  for (size_t i = 0; i < blob.size(); ++i) {
    auto bad = blob;
    bad[i] = uint8_t(bad[i] ^ (1 + i % 255));
    refused(ErrorKind::kBadState, "state: ", [&] { b->load(bad.data(), int64_t(bad.size())); });
  }
  for (size_t size = 0; size < blob.size(); ++size) {
    refused(ErrorKind::kBadState, "state: ", [&] { b->load(blob.data(), int64_t(size)); });
  }
  auto longer = blob;
  longer.push_back(0);
  refused(ErrorKind::kBadState, "bytes", [&] { b->load(longer.data(), int64_t(longer.size())); });
  CHECK(all_of(*b) == before);
  // Another model's state.
  sample::Writer writer({});
  writer.fingerprint = "0123456789abcdee";
  const auto bytes = writer.file();
  const auto other = Model::from_memory(bytes.data(), writer.size, "other", {});
  refused(ErrorKind::kBadState, "0123456789abcdef",
          [&] { other->create_stream()->load(blob.data(), int64_t(blob.size())); });
}

void test_errors_change_nothing() {
  const Made made = make({}), other = make({});
  const Model& model = *made.model;
  const Input input(model, 10, 4);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(model.create_stream());
  std::vector<Chunk> good;
  for (auto& stream : streams) good.push_back(input.chunk(*stream, 0, 10, nullptr));
  model.feed(good.data(), 3);
  std::vector<std::vector<uint8_t>> before;
  for (auto& stream : streams) before.push_back(all_of(*stream));
  const auto fails = [&](const char* part, const auto& spoil,
                         ErrorKind kind = ErrorKind::kInvalidArgument) {
    std::vector<Chunk> chunks = good;
    spoil(chunks);
    refused(kind, part, [&] { model.feed(chunks.data(), int64_t(chunks.size())); });
    for (size_t i = 0; i < streams.size(); ++i) CHECK(all_of(*streams[i]) == before[i]);
  };
  auto tokens = input.tokens;
  tokens[9] = 11;
  fails("chunk 2: token 11 at step 9; accepted: 0 to 10",
        [&](auto& c) { c[2].tokens = tokens.data(); });
  tokens[9] = -1;
  fails("token -1", [&](auto& c) { c[2].tokens = tokens.data(); });
  auto dt = input.dt;
  for (const float bad : {0.0f, -1.0f, 0.0005f, INFINITY, NAN, 2e30f}) {
    dt[5] = bad;
    fails("dt is", [&](auto& c) { c[1].dt = dt.data(); });
  }
  fails("twice", [&](auto& c) { c[2].stream = c[0].stream; });
  fails("stream is null", [&](auto& c) { c[1].stream = nullptr; });
  const auto foreign = other.model->create_stream();
  fails("another model", [&](auto& c) { c[1].stream = foreign.get(); });
  fails("steps = -1", [&](auto& c) { c[0].steps = -1; });
  fails("tokens are null", [&](auto& c) { c[0].tokens = nullptr; });
  const float x = 0;
  fails("values were given", [&](auto& c) { c[0].values = &x; });
  // Outputs that share memory: whole, in part, of another kind.
  const int64_t V = model.output_size();
  std::vector<float> room(size_t(30 * V));
  float* const first = room.data();
  const auto outputs_of = [&](float* logits0, float* scores1, float* logits2) {
    return [=](auto& c) { c[0].logits = logits0, c[1].scores = scores1, c[2].logits = logits2; };
  };
  const char* const of_two = "chunk 2: its outputs overlap those of chunk 0";
  fails(of_two, outputs_of(first, nullptr, first));
  fails(of_two, outputs_of(first + 10 * V - 1, nullptr, first));
  fails("chunk 1: its outputs overlap those of chunk 0",
        outputs_of(first, first + 10 * V - 1, first + 20 * V));
  fails("chunk 1: logits and log_probs overlap",
        [&](auto& c) { c[1].logits = c[1].scores = first; });
  fails("logits and log_probs overlap", [&](auto& c) {
    c.resize(1);
    c[0].logits = c[0].scores = first;
  });
  std::fill(room.begin(), room.end(), 1.0f);  // a dt that is good, but for where it lies
  for (const float* own : {first, first + 9, first + 10 * V - 1})
    fails("chunk 0: an output overlaps what is fed",
          [&](auto& c) { c[0].logits = first, c[0].dt = own; });
  const auto a = model.create_stream(), b = model.create_stream();
  std::vector<Chunk> touching{input.chunk(*a, 0, 10, first + 10 * V),
                              input.chunk(*b, 0, 10, first)};
  touching[0].scores = first + 20 * V;
  model.feed(touching.data(), 2);
  CHECK(std::equal(first, first + 10 * V, first + 10 * V));
  tsm::Sampling sampling;
  int64_t token;
  sampling.temperature = -1;
  refused(ErrorKind::kInvalidArgument, "temperature",
          [&] { streams[0]->generate(1, sampling, &token); });
  sampling = {};
  sampling.top_p = 0;
  refused(ErrorKind::kInvalidArgument, "top_p", [&] { streams[0]->generate(1, sampling, &token); });
  sampling = {};
  sampling.top_k = -1;
  refused(ErrorKind::kInvalidArgument, "top_k", [&] { streams[0]->generate(1, sampling, &token); });

  sample::Spec spec;
  spec.input = "values";
  spec.family = "classifier";
  const Made floats = make(spec);
  const auto stream = floats.model->create_stream();
  std::vector<float> values(10, 0.5f);
  Chunk chunk;
  chunk.stream = stream.get();
  chunk.values = values.data();
  chunk.steps = 2;
  floats.model->feed(&chunk, 1);
  const auto kept = all_of(*stream);
  values[7] = NAN;
  refused(ErrorKind::kInvalidArgument, "step 1, column 2", [&] { floats.model->feed(&chunk, 1); });
  float score;
  refused(ErrorKind::kInvalidArgument, "language model",
          [&] { floats.model->score(*stream, &token, 1, nullptr, &score); });
  refused(ErrorKind::kInvalidArgument, "language model", [&] { stream->generate(1, {}, &token); });
  CHECK(all_of(*stream) == kept);

  spec = {};
  spec.cell = sample::lstm();
  const Made timeless = make(spec);
  const auto s = timeless.model->create_stream();
  chunk = Input(*timeless.model, 1, 1).chunk(*s, 0, 0, nullptr);
  const float one = 1;
  int64_t zero = 0;
  chunk.tokens = &zero;
  chunk.steps = 1;
  chunk.dt = &one;
  refused(ErrorKind::kInvalidArgument, "lstm", [&] { timeless.model->feed(&chunk, 1); });
}

// A state that leaves the numbers: all streams of the call are put back, at any place in a chunk.
void test_explosion() {
  sample::Spec spec;
  spec.cell = sample::bomb();
  const Made made = make(spec);
  const Model& model = *made.model;
  const Input input(model, 100, 4);
  const auto a = model.create_stream(), b = model.create_stream();
  Chunk chunks[2] = {input.chunk(*a, 0, 3, nullptr), input.chunk(*b, 0, 3, nullptr)};
  model.feed(chunks, 2);
  const auto before_a = all_of(*a), before_b = all_of(*b);
  chunks[0] = input.chunk(*a, 3, 100, nullptr);
  chunks[1] = input.chunk(*b, 3, 5, nullptr);
  refused(ErrorKind::kBadState, "layer 0 (bomb): state c", [&] { model.feed(chunks, 2); });
  CHECK(all_of(*a) == before_a);
  CHECK(all_of(*b) == before_b);
  std::vector<int64_t> tokens(100);
  refused(ErrorKind::kBadState, "state c", [&] { a->generate(100, {}, tokens.data()); });
  CHECK(all_of(*a) == before_a);
  model.feed(chunks + 1, 1);  // and both go on
  CHECK(b->position() == 5);
}

void test_busy() {
  sample::Spec spec;
  spec.H = 64;
  const Made made = make(spec);
  const Input input(*made.model, 20000, 4);
  const auto stream = made.model->create_stream();
  std::atomic<bool> over{false};
  std::thread feeder([&] {
    const Chunk chunk = input.chunk(*stream, 0, 20000, nullptr);
    while (!over) {
      try {
        made.model->feed(&chunk, 1);
        over = true;
      } catch (const tsm::Error& error) {  // `save` below had the stream
        CHECK(error.kind == ErrorKind::kBusy);
      }
    }
  });
  bool seen = false;
  while (!over && !seen) {
    try {
      stream->save();
    } catch (const tsm::Error& error) {
      CHECK(error.kind == ErrorKind::kBusy);
      seen = true;
    }
  }
  feeder.join();
  CHECK(seen);
  CHECK(stream->position() == 20000);
}

// One model, many threads with streams of their own: each gets what it would get alone.
void test_shared_by_threads() {
  const Made made = make({}, Weights::kFloat32, nullptr, 2);
  const Model& model = *made.model;
  const Input input(model, 200, 8);
  const auto alone = model.create_stream();
  const Chunk whole = input.chunk(*alone, 0, 200, nullptr);
  model.feed(&whole, 1);
  const auto expected = all_of(*alone);
  std::vector<std::vector<uint8_t>> found(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto stream = model.create_stream();
      for (int64_t t = 0; t < 200; t += 5) {
        const Chunk chunk = input.chunk(*stream, t, t + 5, nullptr);
        model.feed(&chunk, 1);
      }
      found[i] = all_of(*stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : found) CHECK(each == expected);
}

}  // namespace

int main() {
  CHECK(sample::program_hash(sample::plstm()) == sample::plstm().hash);
  CHECK(sample::program_hash(sample::lstm()) == sample::lstm().hash);
  test_all_chunks();
  test_rows_where_they_lie();
  test_compiled_or_interpreted();
  test_score_and_generate();
  test_sampling_follows_the_probabilities();
  test_save_load_fork_reset();
  test_errors_change_nothing();
  test_explosion();
  test_busy();
  test_shared_by_threads();
  return check::result();
}
