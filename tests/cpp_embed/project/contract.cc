// Tests what tsm.hpp promises to C++ programs, with a language model: contract_cpp MODEL
#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>
#include <tsm/tsm.hpp>
#include <type_traits>

namespace {

int failures = 0;

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      ++failures;                                                                  \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                              \
  } while (0)

template <class F>
tsm_status status_of(const F& f) {
  try {
    f();
  } catch (const tsm::Error& error) {
    CHECK(std::string(error.what()) != "");
    return error.status;
  }
  return TSM_OK;
}

static_assert(!std::is_copy_constructible_v<tsm::Model> &&
              std::is_move_constructible_v<tsm::Model>);
static_assert(!std::is_copy_constructible_v<tsm::Stream> && std::is_move_assignable_v<tsm::Stream>);

tsm::Stream stream_of_a_model_that_is_gone(const char* path) {
  return tsm::Model::load(path).create_stream();
}

void test_feeding(const tsm::Model& model) {
  const std::size_t V = std::size_t(model.output_size());
  const std::vector<std::int64_t> tokens{1, 0, 1};
  tsm::Stream a = model.create_stream(), b = model.create_stream();
  const std::vector<float> whole = a.feed(tokens);
  CHECK(whole.size() == 3 * V && a.position() == 3 && a.time() == 3);
  std::vector<float> parts(3 * V);
  b.feed({tokens.data(), 1}, {parts.data(), V});
  b.feed({tokens.data() + 1, 2}, {&parts[V], 2 * V});
  CHECK(parts == whole);
  CHECK(b.feed(std::array<std::int64_t, 1>{1}, tsm::Outputs::kLastStep).size() == V);
  b.load(a.save());
  CHECK(b.position() == 3);
  const tsm::Sampling greedy{0};
  std::array<std::int64_t, 4> drawn;
  tsm::Stream c = a.fork();
  a.generate(drawn, greedy);
  CHECK(b.generate(4, greedy) == std::vector<std::int64_t>(drawn.begin(), drawn.end()));
  CHECK(c.position() == 3 && a.position() == 7);
  a.reset();
  CHECK(a.position() == 0 && a.score(tokens).size() == 3);
  c = std::move(a);
  CHECK(c.position() == 3);
}

void test_errors(const tsm::Model& model, const char* path) {
  const std::vector<std::int64_t> tokens{0, model.vocab_size()};
  std::vector<float> small(1);
  tsm::Stream stream = model.create_stream();
  CHECK(status_of([] { tsm::Model::load("nowhere"); }) == TSM_BAD_FILE);
  CHECK(status_of([&] { tsm::Model::load(path, {TSM_FLOAT32, -3}); }) == TSM_INVALID_ARGUMENT);
  CHECK(status_of([&] { stream.feed(tokens); }) == TSM_INVALID_ARGUMENT);
  CHECK(status_of([&] { stream.feed({tokens.data(), 1}, small); }) == TSM_INVALID_ARGUMENT);
  CHECK(status_of([&] { stream.feed(small); }) == TSM_INVALID_ARGUMENT);
  CHECK(status_of([&] { stream.score({tokens.data(), 1}, {}, {}); }) == TSM_INVALID_ARGUMENT);
  CHECK(status_of([&] { stream.score({tokens.data(), 2}, small); }) == TSM_INVALID_ARGUMENT);
  CHECK(status_of([&] { stream.load(std::vector<std::uint8_t>(99)); }) == TSM_BAD_STATE);
  CHECK(stream.position() == 0);
}

void test_many(const tsm::Model& model) {
  const std::size_t V = std::size_t(model.output_size());
  const std::vector<std::int64_t> tokens{1, 0, 1, 1, 0};
  std::vector<tsm::Stream> streams;
  std::vector<std::vector<float>> logits;
  std::vector<tsm::Chunk> chunks;
  for (std::size_t i = 0; i < 6; ++i) {
    streams.push_back(model.create_stream());
    logits.emplace_back(i * V);
  }
  for (std::size_t i = 0; i < 6; ++i)
    chunks.push_back({&streams[i], {tokens.data(), i}, {}, {}, logits[i], {}, {}});
  model.feed_many(chunks);
  const std::vector<float> expected = model.create_stream().feed(tokens);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(streams[i].position() == std::int64_t(i));
    CHECK(std::equal(logits[i].begin(), logits[i].end(), expected.begin()));
  }
  chunks[3].stream = &streams[2];
  CHECK(status_of([&] { model.feed_many(chunks); }) == TSM_INVALID_ARGUMENT);
}

void test_failures(const tsm::Model& model) {
  const std::vector<std::int64_t> tokens{1, 0, 1}, bad{-1};
  const std::vector<float> dt(2, 1.0f);
  std::vector<tsm::Stream> streams;
  std::vector<tsm::Chunk> chunks(4);
  for (std::size_t i = 0; i < 4; ++i) streams.push_back(model.create_stream());
  for (std::size_t i = 0; i < 4; ++i) chunks[i].stream = &streams[i], chunks[i].tokens = tokens;
  chunks[1].tokens = bad;
  chunks[2].dt = dt;
  try {
    model.feed_many(chunks);
    CHECK(false);
  } catch (const tsm::Error& error) {
    CHECK(error.chunk == 2 &&
          std::string(error.what()) == "chunks[2]: dt holds 2 values; accepted: 3");
  }
  const std::vector<tsm::Failure> refused = model.try_feed_many(chunks);
  CHECK(refused.size() == 2);
  CHECK(refused[0].chunk == 1 && refused[0].status == TSM_INVALID_ARGUMENT);
  CHECK(refused[0].message.find("token -1") != std::string::npos);
  CHECK(refused[1].chunk == 2 && refused[1].message.find("dt holds 2") != std::string::npos);
  CHECK(streams[0].position() == 3 && streams[3].position() == 3);
  CHECK(streams[1].position() == 0 && streams[2].position() == 0);
}

void test_token_types(const tsm::Model& model) {
  const std::vector<std::int64_t> wide{1, 0, 1};
  const std::array<std::uint16_t, 3> small{1, 0, 1};
  const std::int32_t narrow[] = {1, 0, 1};
  const std::vector<float> expected = model.create_stream().score(wide);
  CHECK(model.create_stream().score(small) == expected);
  CHECK(model.create_stream().score(narrow) == expected);
  CHECK(model.create_stream().score({narrow, 3}) == expected);
}

void test_generating_together(const tsm::Model& model) {
  std::vector<tsm::Stream> streams;
  std::vector<std::vector<std::int64_t>> tokens;
  std::vector<tsm::Generation> items;
  for (std::size_t i = 0; i < 5; ++i) {
    streams.push_back(model.create_stream());
    tokens.emplace_back(i * 3);
  }
  for (std::size_t i = 0; i < 5; ++i)
    items.push_back({&streams[i], tokens[i], {0.5 + double(i), 0, 0.9, i}});
  model.generate_many(items);
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(model.create_stream().generate(i * 3, items[i].sampling) == tokens[i]);
  items[2].sampling.top_k = -1;
  const auto refused = model.try_generate_many(items);
  CHECK(refused.size() == 1 && refused[0].chunk == 2);
  CHECK(streams[2].position() == 6 && streams[3].position() == 18);
}

// Calls that another thread cancels at any point.
void test_cancel(const tsm::Model& model) {
  const std::vector<std::int64_t> tokens(2000000, 1);
  std::vector<std::int64_t> drawn(500000);
  tsm::Stream stream = model.create_stream();
  stream.feed({tokens.data(), 3}, {});
  const auto before = stream.save();
  const auto ended = [&](const auto& call) {
    tsm::Cancel cancel;
    std::thread other([&] { cancel.set(); });
    const tsm_status status = status_of([&] { call(&cancel); });
    other.join();
    CHECK(status == TSM_CANCELLED && cancel.is_set());
    CHECK(stream.save() == before);
  };
  ended([&](const tsm::Cancel* c) { stream.feed(tokens, {}, tsm::Outputs::kEachStep, {}, c); });
  ended([&](const tsm::Cancel* c) { stream.generate(drawn, {}, c); });
  std::vector<tsm::Chunk> chunks(1);
  chunks[0].stream = &stream, chunks[0].tokens = tokens;
  ended([&](const tsm::Cancel* c) { model.feed_many(chunks, c); });
  ended([&](const tsm::Cancel* c) { model.try_feed_many(chunks, c); });
}

// An empty container means "not given", even if it still has capacity.
void test_reused_buffers(const tsm::Model& model) {
  const std::vector<std::int64_t> tokens{1, 0, 1};
  std::vector<float> dt{-1, -1, -1}, logits(1), log_probs(1, 7.0f);
  dt.clear(), logits.clear(), log_probs.clear();
  tsm::Stream one = model.create_stream(), two = model.create_stream();
  std::vector<tsm::Chunk> chunks(1);
  chunks[0].stream = &one, chunks[0].tokens = tokens, chunks[0].dt = dt;
  chunks[0].logits = logits, chunks[0].log_probs = log_probs;
  model.feed_many(chunks);
  CHECK(one.position() == 3 && *log_probs.data() == 7.0f);
  two.feed(tokens, logits, tsm::Outputs::kEachStep, dt);
  CHECK(two.save() == one.save());
}

// Every thread has its own streams of the same model.
void test_threads(const tsm::Model& model) {
  const std::vector<std::int64_t> tokens{1, 0, 1, 1, 0, 1};
  const std::vector<float> expected = model.create_stream().feed(tokens);
  std::array<bool, 4> same{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < same.size(); ++i)
    threads.emplace_back([&, i] {
      same[i] = true;
      for (int round = 0; round < 50; ++round)
        same[i] = same[i] && model.create_stream().feed(tokens) == expected;
    });
  for (auto& thread : threads) thread.join();
  for (const bool as_alone : same) CHECK(as_alone);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const tsm::Model model = tsm::Model::load(argv[1]);
  CHECK(model.family() == TSM_LANGUAGE_MODEL && model.takes_tokens());
  CHECK(model.layers().at(0).states.at(0).name == "h");
  CHECK(model.config().front() == '{' && model.asset("nothing").empty());
  tsm::Stream orphan = stream_of_a_model_that_is_gone(argv[1]);
  CHECK(orphan.score(std::array<std::int64_t, 1>{0}).at(0) < 0);
  test_feeding(model);
  test_errors(model, argv[1]);
  test_many(model);
  test_failures(model);
  test_token_types(model);
  test_generating_together(model);
  test_cancel(model);
  test_reused_buffers(model);
  test_threads(model);
  if (failures == 0) std::puts("all checks passed");
  return failures != 0;
}
