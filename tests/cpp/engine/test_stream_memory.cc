// Heap use of streams and calls: once a model is warm, calls and pool steps allocate nothing; a
// stream allocates its states and at most 256 bytes more.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "engine/pool/pool.h"
#include "engine/stream.h"
#include "support/check.h"
#include "support/model_bytes.h"

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // which bring their own allocator
namespace {
std::atomic<int64_t> allocations{0};
}

// Every allocation of the engine goes through one of these. They are not inlined, since gcc would
// then see free() called on memory from operator new, and warn.
__attribute__((noinline)) void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (!memory) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }
extern "C" void* aligned_alloc(size_t alignment, size_t size) {
  ++allocations;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}

namespace {

using tsm::Chunk;
using tsm::Model;
using tsm::Stream;

void test_no_allocation_when_warm(const sample::Spec& spec, tsm::Weights weights, int threads) {
  const sample::Writer writer(spec);
  const auto bytes = writer.file();
  tsm::LoadOptions options;
  options.weights = weights;
  options.threads = threads;
  const auto model = Model::from_memory(bytes.data(), writer.size, "sample", options);
  constexpr int64_t N = 70, T = 40;
  std::vector<std::unique_ptr<Stream> > streams;
  for (int64_t i = 0; i < N; ++i) streams.push_back(model->create_stream());
  std::vector<int64_t> tokens(T, 1), drawn(3 * N);
  std::vector<tsm::Generation> items(N);
  std::vector<float> logits(size_t(N * T * model->output_size())), scores(T);
  std::vector<Chunk> chunks(N);
  const auto everything = [&](sample::Random& random) {
    for (int64_t i = 0; i < N; ++i) {
      Chunk& chunk = chunks[size_t(i)];
      chunk.stream = streams[size_t(i)].get();
      chunk.tokens = tokens.data();
      chunk.steps = random.below(T + 1);
      chunk.logits = logits.data() + i * T * model->output_size();
      chunk.last_only = random.below(2) == 0;
    }
    model->feed(chunks.data(), N);
    model->feed(chunks.data(), 1);
    model->score(*streams[0], tokens.data(), T, nullptr, scores.data());
    tsm::Sampling sampling;
    sampling.top_k = 3;
    sampling.top_p = 0.9;
    streams[1]->generate(5, sampling, drawn.data());
    for (int64_t i = 0; i < N; ++i)
      items[size_t(i)] = {streams[size_t(i)].get(), i % 3, sampling, 1, drawn.data() + 3 * i};
    model->generate(items.data(), N);
    for (const auto& stream : streams) stream->reset();  // nru grows without bound
  };
  sample::Random random(1);
  for (Chunk& chunk : chunks) chunk = {};
  // Warm up by making the largest call once.
  for (int64_t i = 0; i < N; ++i) {
    chunks[size_t(i)].stream = streams[size_t(i)].get();
    chunks[size_t(i)].tokens = tokens.data();
    chunks[size_t(i)].steps = T;
    chunks[size_t(i)].logits = logits.data() + i * T * model->output_size();
  }
  model->feed(chunks.data(), N);
  everything(random);
  const int64_t before = allocations;
  for (int i = 0; i < 20; ++i) everything(random);
  CHECK(allocations == before);
}

// Submitting a request allocates memory, because it is copied; the scheduler's steps allocate none.
void test_steps_of_a_pool(int threads) {
  const sample::Writer writer({});
  const auto bytes = writer.file();
  tsm::LoadOptions options;
  options.threads = threads;
  const auto model = Model::from_memory(bytes.data(), writer.size, "sample", options);
  tsm::PoolOptions by_hand;
  by_hand.own_thread = false;
  tsm::StreamPool pool(model, by_hand);
  const std::vector<int64_t> tokens(50, 1);
  int64_t in_steps = 0, steps = 0;
  const auto everything = [&] {
    for (int i = 0; i < 100; ++i) {
      const std::string key = "stream " + std::to_string(i % 40);
      tsm::Terms terms;
      terms.user = key;
      if (i % 2) {
        tsm::GenerateRequest asked;
        asked.n = i;
        asked.sampling.top_k = 3;
        asked.progress = i % 3 == 0;
        pool.generate(key, asked, terms);
      } else {
        tsm::FeedRequest asked;
        asked.tokens = tokens.data();
        asked.steps = i % 50;
        asked.logits = tsm::LogitsOf(i % 3);
        asked.log_probs = i % 4 == 0;
        pool.feed(key, asked, terms);
      }
    }
    for (bool more = true; more; ++steps) {
      const int64_t before = allocations;
      more = pool.step();
      in_steps += allocations - before;
      if (steps % 5 == 0)
        for (auto& event : pool.take(1000, 0)) pool.give_back(std::move(event));
    }
    for (auto& event : pool.take(1000, 0)) pool.give_back(std::move(event));
  };
  everything();
  in_steps = 0;
  for (int i = 0; i < 3; ++i) everything();
  CHECK(in_steps == 0);
  CHECK(steps > 300);
  CHECK(pool.stats().finished == 400);
}

void test_bytes_of_a_stream(const sample::Spec& spec) {
  const sample::Writer writer(spec);
  const auto bytes = writer.file();
  const auto model = Model::from_memory(bytes.data(), writer.size, "sample", {});
  constexpr int64_t N = 2000;
  std::vector<std::unique_ptr<Stream> > streams(N);
  model->create_stream();
  const auto before = mallinfo2().uordblks;
  for (auto& stream : streams) stream = model->create_stream();
  const auto used = int64_t(mallinfo2().uordblks - before);
  const int64_t states = model->state_floats() * 4;
  CHECK(model->stream_bytes() <= states + 256);
  if (used > N * model->stream_bytes()) {
    std::fprintf(stderr, "a stream takes %.1f bytes, its states %lld, stream_bytes() %lld\n",
                 double(used) / N, static_cast<long long>(states),
                 static_cast<long long>(model->stream_bytes()));
  }
  CHECK(used <= N * model->stream_bytes());
}

}  // namespace

TEST_CASE("no allocation when warm") {
  for (const auto& cell : {sample::plstm(), sample::leaky(), sample::nru()}) {
    for (const char* input : {"tokens", "one_hot"}) {
      for (const char* dtype : {"F32", "I8"}) {
        for (const int threads : {1, 2}) {
          sample::Spec spec;
          spec.cell = cell;
          spec.input = input;
          spec.dtype = dtype;
          if (cell.name == "nru") spec.scale = 0.1f;  // it is not bounded
          test_no_allocation_when_warm(spec, tsm::Weights::kFloat32, threads);
          test_no_allocation_when_warm(spec, tsm::Weights::kInt8, threads);
        }
      }
    }
  }
  CHECK(allocations > 0);  // they are counted at all
}

TEST_CASE("steps of a pool") {
  for (const int threads : {1, 2}) test_steps_of_a_pool(threads);
}

TEST_CASE("bytes of a stream") {
  for (const int64_t H : {1, 12, 16, 100, 1000}) {
    sample::Spec spec;
    spec.H = H;
    test_bytes_of_a_stream(spec);
  }
}
#endif
