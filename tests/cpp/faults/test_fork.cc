// A child created by fork() while other threads feed streams and load and free models can continue:
// no lock held at that moment blocks it. test_fork [FORKS]: 10000 in `make nightly`.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/check.h"
#include "support/model_bytes.h"
#include "support/temporary_file.h"
#include "tsm/pool.h"
#include "tsm/tsm.h"

namespace {

constexpr int kFeeders = 4;
constexpr int64_t kTokens[] = {3, 1, 4, 1, 5, 9, 2, 6};

struct Loaded {
  tsm_model* model = nullptr;
  Loaded(const std::string& path, int threads) {
    tsm_load_options options = TSM_LOAD_OPTIONS_INIT;
    options.threads = threads;
    CHECK(tsm_model_load(path.c_str(), &options, &model) == TSM_OK);
  }
  ~Loaded() { tsm_model_free(model); }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
};

// Does everything that a server does, on its own stream; returns the tokens that it generates.
int64_t answer(const tsm_model* model) {
  tsm_stream *stream = nullptr, *twin = nullptr;
  int64_t drawn[2] = {-1, -1};
  tsm_sampling greedy = TSM_SAMPLING_INIT;
  greedy.temperature = 0;
  float scores[2];
  tsm_chunk chunks[2] = {TSM_CHUNK_INIT, TSM_CHUNK_INIT};
  bool right = tsm_stream_create(model, &stream) == TSM_OK;
  right = right && tsm_stream_fork(stream, &twin) == TSM_OK;
  chunks[0].stream = stream;
  chunks[1].stream = twin;
  for (tsm_chunk& chunk : chunks) {
    chunk.tokens = kTokens;
    chunk.T = 8;
  }
  right = right && tsm_model_feed_many(model, chunks, 2, nullptr) == TSM_OK;
  right = right && tsm_stream_score(stream, kTokens, 2, nullptr, scores) == TSM_OK;
  right = right && tsm_stream_generate(stream, 2, &greedy, drawn) == TSM_OK;
  right = right && tsm_stream_score(nullptr, kTokens, 2, nullptr, scores) == TSM_INVALID_ARGUMENT;
  right = right && tsm_last_error()[0] != 0;
  tsm_stream_free(stream);
  tsm_stream_free(twin);
  return right ? drawn[0] * 100 + drawn[1] : -1;
}

// Uses a pool; returns whether it worked.
bool ask(tsm_pool* pool) {
  tsm_pool_input input = TSM_POOL_INPUT_INIT;
  input.tokens = kTokens;
  input.T = 8;
  tsm_pool_event event = TSM_POOL_EVENT_INIT;
  uint64_t ticket = 0;
  size_t count = 0;
  return tsm_pool_feed(pool, "key", 3, &input, nullptr, &ticket) == TSM_OK &&
         tsm_pool_take(pool, &event, 1, -1, &count) == TSM_OK && event.status == TSM_OK &&
         tsm_pool_release(pool, &event, count) == TSM_OK;
}

// In a child, a pool of the parent is closed and can only be freed, whatever its thread was doing.
bool is_closed(tsm_pool* pool) {
  int known = 0;
  const bool closed = tsm_pool_has(pool, "key", 3, &known) == TSM_CLOSED;
  tsm_pool_free(pool);
  return closed;
}

// The exit status of a child: 0 if its answers were the same as the parent's.
int in_a_child(const std::string& path, const Loaded* models, tsm_pool* pool, int64_t expected) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // hangs end in SIGALRM
    bool right = answer(models[0].model) == expected && answer(models[1].model) == expected;
    right = right && is_closed(pool);
    const Loaded own(path, 2);
    right = right && answer(own.model) == expected;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

void test_forks(int forks) {
  sample::Spec spec;
  spec.V = 20;
  const sample::Writer writer(spec);
  const auto bytes = writer.file();
  const TemporaryFile file(bytes.data(), writer.size);
  const Loaded models[2] = {{file.path(), 1}, {file.path(), 2}};
  const int64_t expected = answer(models[0].model);
  CHECK((expected >= 0 && answer(models[1].model) == expected));
  std::atomic<bool> stop{false};
  std::atomic<int64_t> wrong{0}, fed{0};
  std::vector<std::thread> feeders;
  for (int i = 0; i < kFeeders; ++i) {
    feeders.emplace_back([&, i] {
      while (!stop.load()) {
        if (answer(models[i % 2].model) != expected) wrong.fetch_add(1);
        fed.fetch_add(1);
      }
    });
  }
  tsm_pool* pool = nullptr;
  CHECK(tsm_pool_create(models[0].model, nullptr, &pool) == TSM_OK);
  feeders.emplace_back([&] {
    while (!stop.load()) wrong.fetch_add(!ask(pool));
  });
  int hung = 0, failed = 0;
  for (int i = 0; i < forks; ++i) {
    const int status = in_a_child(file.path(), models, pool, expected);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
      ++hung;
    else if (status != 0)
      ++failed;
  }
  stop.store(true);
  for (std::thread& feeder : feeders) feeder.join();
  tsm_pool_free(pool);
  std::printf("%d forks beside %d feeding threads (%lld rounds): %d hung, %d failed\n", forks,
              kFeeders + 1, static_cast<long long>(fed.load()), hung, failed);
  CHECK((hung == 0 && failed == 0 && wrong.load() == 0));
}

TEST_CASE("forks") { test_forks(200); }
TEST_CASE("very many forks" * doctest::skip()) { test_forks(10000); }  // make nightly

}  // namespace
