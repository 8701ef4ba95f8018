// Streams over models of every kind: cells that are compiled in or not, scores, sampling, saved
// states, threads that share a model; errors change nothing. (Chunks and batches: test_chunks.cc.)
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "support/check.h"
#include "support/fed_models.h"

using namespace fed;
using tsm::ErrorKind;

namespace {

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

TEST_CASE("compiled or interpreted") {
  for (const Isa* isa : tsm::host_isas()) {
    sample::Spec spec;
    CHECK(!make(spec, Weights::kFloat32, isa).model->layers()[0].interpreted);
    // The same formula under another name still runs as the compiled cell.
    spec.cell.name = "mine";
    CHECK(!make(spec, Weights::kFloat32, isa).model->layers()[0].interpreted);
    // Another formula under a known name is interpreted.
    spec.cell = sample::plstm();
    const size_t at = spec.cell.program.find("[\"tanh\",\"z.g\"]");
    spec.cell.program.replace(at, 14, "[\"sigmoid\",\"z.g\"]");
    const Made changed = make(spec, Weights::kFloat32, isa);
    CHECK(changed.model->layers()[0].interpreted);
    // The changed formula gives other numbers; on the same formula, the interpreter agrees with the
    // compiled cell.
    spec.cell = sample::plstm();
    // 1 * h changes the hash but not the value.
    spec.cell.program.replace(spec.cell.program.find("\"h\":19"), 6, "\"h\":20");
    spec.cell.program.replace(spec.cell.program.find("[\"mul\",17,18]]"), 14,
                              "[\"mul\",17,18],[\"mul\",19,{\"value\":1.0}]]");
    const Made twin = make(spec, Weights::kFloat32, isa), own = make({}, Weights::kFloat32, isa);
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

TEST_CASE("score and generate") {
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
    // Generating ends in the same state as feeding the tokens, in one call or in two.
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
    // Temperature 0 takes the most probable token, and so does top_k = 1.
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

TEST_CASE("sampling follows the probabilities") {
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
      // Five standard deviations of a relative frequency over kDraws draws.
      const double allowed = 5 * std::sqrt(expected * (1 - expected) / kDraws);
      CHECK(std::fabs(double(counts[order[i]]) / kDraws - expected) <= allowed);
    }
  }
}

TEST_CASE("save load fork reset") {
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
  CHECK((b->position() == 25 && c->position() == 25));
  CHECK((b->time() == a->time() && a->time() > 2.5));
  for (Stream* stream : {a.get(), b.get(), c.get()}) {
    chunk = input.chunk(*stream, 25, 40, nullptr);
    model.feed(&chunk, 1);
  }
  CHECK(all_of(*a) == all_of(*b));
  CHECK(all_of(*a) == all_of(*c));
  a->reset();
  CHECK(all_of(*a) == fresh);
  // Damage to any byte is detected, and the stream does not change.
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

TEST_CASE("errors change nothing") {
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
  fails("chunks[2]: token 11 at step 9; accepted: 0 to 10",
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
  // Outputs that overlap in memory: completely, partly, or with outputs of another kind.
  const int64_t V = model.output_size();
  std::vector<float> room(size_t(30 * V));
  float* const first = room.data();
  const auto outputs_of = [&](float* logits0, float* scores1, float* logits2) {
    return [=](auto& c) { c[0].logits = logits0, c[1].scores = scores1, c[2].logits = logits2; };
  };
  const char* const of_two = "chunks[2]: its outputs overlap those of chunks[0]";
  fails(of_two, outputs_of(first, nullptr, first));
  fails(of_two, outputs_of(first + 10 * V - 1, nullptr, first));
  fails("chunks[1]: its outputs overlap those of chunks[0]",
        outputs_of(first, first + 10 * V - 1, first + 20 * V));
  fails("chunks[1]: logits and log_probs overlap",
        [&](auto& c) { c[1].logits = c[1].scores = first; });
  fails("logits and log_probs overlap", [&](auto& c) {
    c.resize(1);
    c[0].logits = c[0].scores = first;
  });
  std::fill(room.begin(), room.end(), 1.0f);  // a valid dt in the wrong place
  for (const float* own : {first, first + 9, first + 10 * V - 1})
    fails("chunks[0]: an output overlaps what is fed",
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

// A state becomes infinite or NaN at any position in a chunk: all streams of the call are restored.
TEST_CASE("explosion") {
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

TEST_CASE("busy") {
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

// One model, many threads with their own streams: each gets the same results as alone.
TEST_CASE("shared by threads") {
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

TEST_CASE("hashes of the programs") {
  CHECK(sample::program_hash(sample::plstm()) == sample::plstm().hash);
  CHECK(sample::program_hash(sample::lstm()) == sample::lstm().hash);
}
