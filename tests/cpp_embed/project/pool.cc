// Tests what tsm/pool.hpp promises to C++ programs, with a language model: pool_cpp MODEL
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <tsm/pool.hpp>
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

static_assert(!std::is_copy_constructible_v<tsm::StreamPool>);

template <class F>
tsm_status status_of(const F& f) {
  try {
    f();
  } catch (const tsm::Error& error) {
    return error.status;
  }
  return TSM_OK;
}

template <class T>
std::vector<T> copy(tsm::Span<const T> span) {
  return {span.data(), span.data() + span.size()};
}

void test_results(const tsm::Model& model) {
  tsm::StreamPool pool(model);
  tsm::Stream lone = model.create_stream();
  const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  std::map<std::uint64_t, std::vector<float>> expected;
  tsm::Stream scored = lone.fork();
  const auto each = pool.feed("a", tokens, {tsm::Logits::kEach});
  expected[each] = lone.feed(tokens);
  const auto log_probs = pool.feed("b", tokens, {tsm::Logits::kNone, true}, {"ben", 3});
  expected[log_probs] = scored.score(tokens);
  tsm::DrawOptions options;
  options.sampling.seed = 3;
  options.progress = true;
  tsm::Terms terms;
  terms.save = true;
  const auto drawn = pool.generate("a", 9, options, terms);
  const auto all = lone.generate(9, options.sampling);
  for (std::size_t done = 0; done < 3;) {
    for (const tsm::PoolEvent& event : pool.take()) {
      CHECK(event.status == TSM_OK && event.message.empty());
      if (event.ticket == each) CHECK(copy(event.logits) == expected[each]);
      if (event.ticket == log_probs) CHECK(copy(event.log_probs) == expected[log_probs]);
      if (!event.done) CHECK(event.ticket == drawn && !event.tokens.empty());
      if (event.ticket == drawn && event.done)
        CHECK(copy(event.tokens) == all && copy(event.blob) == lone.save());
      done += event.done;
    }
  }
  CHECK(pool.take(1, 0).empty() && pool.position("a") == 20 && pool.save("a") == lone.save());
  terms.expected_position = 19;  // it is at 20
  pool.feed("a", tokens, {}, terms);
  for (const tsm::PoolEvent& event : pool.take()) CHECK(event.status == TSM_BAD_STATE);
  CHECK(pool.position("a") == 20);
  pool.fork("a", "c");
  pool.reset("a");
  pool.put("b", lone.save());
  CHECK(pool.position("c") == 20 && pool.position("a") == 0 && pool.position("b") == 20);
  pool.drop("c");
  CHECK(!pool.has("c") && pool.has("b"));
  CHECK(status_of([&] { pool.save("c"); }) == TSM_INVALID_ARGUMENT);
  const std::vector<float> values(3);
  CHECK(status_of([&] { pool.feed("a", tsm::Floats(values)); }) == TSM_INVALID_ARGUMENT);
  const std::vector<float> dt(2, 1.0f);
  tsm::FeedOptions wrong;
  wrong.dt = dt;
  CHECK(status_of([&] { pool.feed("a", tokens, wrong); }) == TSM_INVALID_ARGUMENT);
  const auto endless = pool.generate("a", std::int64_t(1) << 40);
  CHECK(pool.cancel(endless));
  for (const tsm::PoolEvent& event : pool.take()) CHECK(event.status == TSM_CANCELLED);
  pool.close();
  CHECK(pool.take().empty() && !pool.wait_room());
  CHECK(pool.stats().finished == 3 && pool.stats().cancelled == 1);
}

void test_spill(const tsm::Model& model) {
  std::map<std::string, std::vector<std::uint8_t>> store;
  bool fails = false;
  tsm::PoolOptions options;
  options.max_streams = 1;
  options.spill = [&](std::string_view key, tsm::Span<const std::uint8_t> blob, std::int64_t) {
    if (fails) throw std::runtime_error("disk full");
    store[std::string(key)] = copy(blob);
  };
  tsm::StreamPool pool(model, options);
  const std::vector<std::int64_t> tokens{1};
  for (const char* key : {"a", "b"}) {
    pool.feed(key, tokens);
    CHECK(pool.take().size() == 1);
  }
  CHECK(store.size() == 1 && store.count("a") == 1 && !pool.has("a"));
  fails = true;
  CHECK(status_of([&] { pool.put("a", store["a"]); }) == TSM_FULL && pool.has("b"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const tsm::Model model = tsm::Model::load(argv[1]);
  test_results(model);
  test_spill(model);
  if (failures == 0) std::printf("all checks passed\n");
  return failures != 0;
}
