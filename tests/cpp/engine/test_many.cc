// Calls on many streams: tokens of every type, errors that only affect their own chunk, tokens
// drawn for all streams at once, and cancelled calls.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "support/check.h"
#include "support/fed_models.h"

using namespace fed;
using tsm::Call;
using tsm::ErrorKind;
using tsm::Failure;
using tsm::Generation;

namespace {

std::vector<std::unique_ptr<Stream>> streams_of(const Model& model, size_t count) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < count; ++i) {
    streams.push_back(model.create_stream());
    const Input input(model, int64_t(i % 7), i);  // at different places
    const Chunk chunk = input.chunk(*streams.back(), 0, int64_t(i % 7), nullptr);
    model.feed(&chunk, 1);
  }
  return streams;
}

template <class Call>
ErrorKind kind_of(const Call& call) {
  try {
    call();
  } catch (const tsm::Error& error) {
    return error.kind;
  }
  return ErrorKind(0);
}

TEST_CASE("token types") {
  for (const char* input : {"tokens", "one_hot"}) {
    sample::Spec spec;
    spec.input = input;
    const Made made = make(spec);
    const Model& model = *made.model;
    const int64_t T = 300, V = model.output_size();  // more than a slice
    const Input given(model, T, 3);
    const std::vector<int32_t> narrow(given.tokens.begin(), given.tokens.end());
    const std::vector<uint16_t> small(given.tokens.begin(), given.tokens.end());
    std::vector<std::vector<float>> logits, scores;
    std::vector<std::vector<uint8_t>> ends;
    for (const tsm::Tokens tokens : {tsm::Tokens(given.tokens.data()), tsm::Tokens(narrow.data()),
                                     tsm::Tokens(small.data())}) {
      const auto stream = model.create_stream();
      logits.emplace_back(size_t(T * V));
      scores.emplace_back(size_t(T));
      Chunk chunk = given.chunk(*stream, 0, T, logits.back().data());
      chunk.tokens = tokens;
      chunk.scores = scores.back().data();
      model.feed(&chunk, 1);
      ends.push_back(all_of(*stream));
    }
    for (size_t i = 1; i < 3; ++i) {
      CHECK((same(logits[i], logits[0]) && same(scores[i], scores[0])));
      CHECK(ends[i] == ends[0]);
    }
    // Token numbers do not wrap around: one outside the vocabulary is refused.
    const int32_t below[] = {-1};
    const uint16_t above[] = {65535};
    const int64_t far[] = {int64_t(1) << 32, (int64_t(1) << 16)};
    const auto stream = model.create_stream();
    for (const tsm::Tokens tokens :
         {tsm::Tokens(below), tsm::Tokens(above), tsm::Tokens(far), tsm::Tokens(far + 1)}) {
      Chunk chunk;
      chunk.stream = stream.get();
      chunk.tokens = tokens;
      chunk.steps = 1;
      CHECK(kind_of([&] { model.feed(&chunk, 1); }) == ErrorKind::kInvalidArgument);
    }
    CHECK(stream->position() == 0);
  }
}

// Every chunk is bad in turn, in a way that is detected before the computation or only during it.
TEST_CASE("failures stay with their chunk") {
  sample::Spec spec;
  spec.cell = sample::bomb();  // explodes after some steps
  const Made made = make(spec);
  const Model& model = *made.model;
  constexpr size_t N = 70;
  const Input input(model, 100, 4);
  const int64_t wrong = -1;
  for (const size_t at : {size_t(0), size_t(1), size_t(63), size_t(64), N - 1}) {
    for (const bool explodes : {false, true}) {
      const auto streams = streams_of(model, N), alone = streams_of(model, N);
      std::vector<std::vector<uint8_t>> before, expected;
      std::vector<Chunk> chunks;
      for (size_t i = 0; i < N; ++i) {
        before.push_back(all_of(*streams[i]));
        chunks.push_back(input.chunk(*streams[i], 0, 2, nullptr));
        const Chunk own = input.chunk(*alone[i], 0, 2, nullptr);
        model.feed(&own, 1);
        expected.push_back(all_of(*alone[i]));
      }
      if (explodes) {
        chunks[at].steps = 100;
      } else {
        chunks[at].tokens = &wrong;
        chunks[at].steps = 1;
      }
      const ErrorKind kind = explodes ? ErrorKind::kBadState : ErrorKind::kInvalidArgument;
      try {
        model.feed(chunks.data(), int64_t(N));
        CHECK(false);
      } catch (const tsm::Error& error) {
        CHECK((error.kind == kind && error.chunk == int64_t(at)));
      }
      for (size_t i = 0; i < N; ++i) CHECK(all_of(*streams[i]) == before[i]);
      std::vector<Failure> failures;
      model.feed(chunks.data(), int64_t(N), {nullptr, &failures, false});
      CHECK((failures.size() == 1 && failures[0].chunk == int64_t(at) && failures[0].kind == kind));
      for (size_t i = 0; i < N; ++i)
        CHECK(all_of(*streams[i]) == (i == at ? before[i] : expected[i]));
    }
  }
}

// With its own settings, each stream gives the same tokens and states as alone.
void test_generating_together(const sample::Spec& spec, Weights weights, const Isa* isa) {
  constexpr size_t N = 70;
  const Made made = make(spec, weights, isa), threaded = make(spec, weights, isa, 3);
  std::vector<Generation> items(N);
  std::vector<std::vector<int64_t>> tokens(N), expected(N);
  for (size_t i = 0; i < N; ++i) {
    Generation& item = items[i];
    item.n = int64_t(i * 7 % 13);
    item.sampling = {i % 5 == 0 ? 0.0 : 0.5 + double(i % 4), int64_t(i % 3) * 2, i % 2 ? 1.0 : 0.8,
                     uint64_t(i)};
    if (i % 3 == 0 && made.model->takes_dt()) item.dt = 0.5f;
  }
  const auto alone = streams_of(*made.model, N);
  for (size_t i = 0; i < N; ++i) {
    expected[i].resize(size_t(items[i].n));
    alone[i]->generate(items[i].n, items[i].sampling, expected[i].data(), items[i].dt);
  }
  for (const Made* use : {&made, &threaded}) {
    const auto streams = streams_of(*use->model, N);
    for (size_t i = 0; i < N; ++i) {
      tokens[i].assign(size_t(items[i].n), -1);
      items[i].stream = streams[i].get();
      items[i].tokens = tokens[i].data();
    }
    use->model->generate(items.data(), int64_t(N));
    CHECK(tokens == expected);
    for (size_t i = 0; i < N; ++i) CHECK(all_of(*streams[i]) == all_of(*alone[i]));
  }
}

TEST_CASE("generating everywhere") {
  std::vector<sample::Spec> specs(2);
  specs[1].cell = sample::lstm();
  specs[1].input = "one_hot";
  for (const sample::Spec& spec : specs) {
    for (const Isa* isa : tsm::host_isas()) {
      for (const Weights weights : kAll) test_generating_together(spec, weights, isa);
    }
  }
}

TEST_CASE("a generation that fails") {
  sample::Spec spec;
  spec.cell = sample::bomb();
  const Made made = make(spec);
  const Model& model = *made.model;
  const auto streams = streams_of(model, 3), alone = streams_of(model, 3);
  std::vector<std::vector<uint8_t>> before;
  std::vector<std::vector<int64_t>> tokens(3, std::vector<int64_t>(100)), expected = tokens;
  std::vector<Generation> items(3);
  for (size_t i = 0; i < 3; ++i) {
    before.push_back(all_of(*streams[i]));
    items[i] = {streams[i].get(), i == 1 ? 100 : 2, {}, 1, tokens[i].data()};
    if (i != 1) alone[i]->generate(2, {}, expected[i].data());
  }
  try {
    model.generate(items.data(), 3);
    CHECK(false);
  } catch (const tsm::Error& error) {
    CHECK((error.kind == ErrorKind::kBadState && error.chunk == 1));
  }
  for (size_t i = 0; i < 3; ++i) CHECK(all_of(*streams[i]) == before[i]);
  std::vector<Failure> failures;
  model.generate(items.data(), 3, {nullptr, &failures, false});
  CHECK((failures.size() == 1 && failures[0].chunk == 1));
  for (size_t i = 0; i < 3; ++i) {
    CHECK(all_of(*streams[i]) == (i == 1 ? before[i] : all_of(*alone[i])));
    if (i != 1) CHECK(tokens[i] == expected[i]);
  }
}

// Cancels when polled for the n-th time.
class AtQuestion : public tsm::Cancel {
 public:
  explicit AtQuestion(int n) : left_(n) {}
  bool requested() override { return left_-- == 0; }

 private:
  int left_;
};

// A call that is cancelled at any slice leaves every stream unchanged.
TEST_CASE("cancel") {
  const Made made = make({});
  const Model& model = *made.model;
  constexpr int64_t T = 700;
  const Input input(model, T, 5);
  const auto streams = streams_of(model, 3);
  std::vector<std::vector<uint8_t>> before;
  for (const auto& stream : streams) before.push_back(all_of(*stream));
  std::vector<Chunk> chunks;
  for (const auto& stream : streams) chunks.push_back(input.chunk(*stream, 0, T, nullptr));
  chunks[1].steps = 3;
  std::vector<int64_t> drawn(40);
  const auto ends = [&](const auto& call) {  // how often it polls if it is never cancelled
    int asked = 0;
    for (; asked < 1000; ++asked) {
      AtQuestion cancel(asked);
      if (kind_of([&] { call(&cancel); }) != ErrorKind::kCancelled) break;
      for (size_t i = 0; i < 3; ++i) CHECK(all_of(*streams[i]) == before[i]);
    }
    for (size_t i = 0; i < 3; ++i) streams[i]->load(before[i].data(), int64_t(before[i].size()));
    return asked;
  };
  CHECK(ends([&](tsm::Cancel* c) { model.feed(chunks.data(), 3, {c, nullptr, false}); }) >= 4);
  std::vector<Failure> failures;
  CHECK(ends([&](tsm::Cancel* c) { model.feed(chunks.data(), 3, {c, &failures, false}); }) >= 4);
  CHECK(failures.empty());
  CHECK(ends([&](tsm::Cancel* c) { streams[0]->generate(40, {}, drawn.data(), 1, c); }) >= 40);
  const Generation both[] = {{streams[0].get(), 9, {}, 1, drawn.data()},
                             {streams[2].get(), 20, {}, 1, drawn.data() + 20}};
  CHECK(ends([&](tsm::Cancel* c) { model.generate(both, 2, {c, nullptr, false}); }) >= 20);
}

}  // namespace
