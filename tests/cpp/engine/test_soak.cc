// A million feeds of random chunk sizes over 10,000 streams, alone and in batches: memory stays
// constant, and every stream ends in the same state as alone.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/stream.h"
#include "support/check.h"
#include "support/model_bytes.h"

using tsm::Chunk;
using tsm::Model;
using tsm::Stream;

namespace {

constexpr int64_t kStreams = 10000;

// Bytes of memory that the process uses now.
int64_t resident() {
  long total = 0, pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (!file) return 0;
  if (std::fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
  std::fclose(file);
  return int64_t(pages) * sysconf(_SC_PAGESIZE);
}

// Computes a stream's token from its position, so that it need not be recorded for a replay.
int64_t token_of(int64_t stream, int64_t position, int64_t V) {
  return sample::Random(uint64_t(stream) << 32 ^ uint64_t(position)).below(V);
}

}  // namespace

TEST_CASE("a million feeds") {
  const int64_t feeds = 1000000;
  sample::Spec spec;
  spec.H = 8;
  spec.I = 4;
  spec.V = 6;
  const sample::Writer writer(spec);
  const auto bytes = writer.file();
  const auto model = Model::from_memory(bytes.data(), writer.size, "sample", {});
  std::vector<std::unique_ptr<Stream>> streams;
  for (int64_t i = 0; i < kStreams; ++i) streams.push_back(model->create_stream());
  sample::Random random(5);
  constexpr int64_t kMost = 64, kSteps = 12;
  std::vector<Chunk> chunks(kMost);
  std::vector<int64_t> tokens(kMost * kSteps), fed(kStreams, 0);
  std::vector<float> logits(size_t(kMost * spec.V));
  std::vector<char> in_batch(kStreams, 0);
  std::vector<int64_t> batch;
  int64_t done = 0, warm = 0;
  while (done < feeds) {
    const int64_t count = random.below(3) == 0 ? 1 : 1 + random.below(kMost);
    int64_t used = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t number = random.below(kStreams);
      if (in_batch[size_t(number)]) continue;
      in_batch[size_t(number)] = 1;
      batch.push_back(number);
      const int64_t steps = random.below(kSteps + 1);
      int64_t* own = tokens.data() + used * kSteps;
      for (int64_t t = 0; t < steps; ++t) {
        own[t] = token_of(number, fed[size_t(number)] + t, spec.V);
      }
      fed[size_t(number)] += steps;
      Chunk& chunk = chunks[size_t(used)];
      chunk.stream = streams[size_t(number)].get();
      chunk.tokens = own;
      chunk.steps = steps;
      chunk.logits = random.below(2) ? logits.data() + used * spec.V : nullptr;
      chunk.last_only = true;
      ++used;
    }
    model->feed(chunks.data(), used);
    for (int64_t number : batch) in_batch[size_t(number)] = 0;
    batch.clear();
    done += used;
    // From time to time a stream is moved: saved, dropped, and loaded again.
    if (random.below(50) == 0) {
      auto& place = streams[size_t(random.below(kStreams))];
      const auto blob = place->save();
      place = model->create_stream();
      place->load(blob.data(), int64_t(blob.size()));
    }
    if (warm == 0 && done > feeds / 5) warm = resident();
  }
  const int64_t grown = resident() - warm;
  std::printf("%lld feeds; memory grew by %lld KiB after the first fifth\n",
              static_cast<long long>(done), static_cast<long long>(grown / 1024));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A leak of 4 bytes per feed would be 3 MB.
  CHECK((warm > 0 && grown < 1 << 20));
#endif
  // Every stream is replayed alone in one chunk.
  for (int64_t i = 0; i < kStreams; ++i) {
    std::vector<int64_t> all(static_cast<size_t>(fed[size_t(i)]));
    for (size_t t = 0; t < all.size(); ++t) all[t] = token_of(i, int64_t(t), spec.V);
    const auto alone = model->create_stream();
    Chunk chunk;
    chunk.stream = alone.get();
    chunk.tokens = all.data();
    chunk.steps = fed[size_t(i)];
    model->feed(&chunk, 1);
    CHECK(alone->save() == streams[size_t(i)]->save());
  }
}
