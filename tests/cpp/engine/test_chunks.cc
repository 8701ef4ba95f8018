// Results have the same bits for any split into chunks, any batch and any number of threads, for
// every instruction set of the host and every kind of weights.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "support/check.h"
#include "support/fed_models.h"

using namespace fed;

namespace {

// Compares streams fed one after the other, in one chunk each, with ragged batches in random
// chunks.
void test_chunks(const sample::Spec& spec, Weights weights, const Isa* isa) {
  constexpr int64_t N = 70, T = 33;  // more streams than a group holds
  const Made made = make(spec, weights, isa), threaded = make(spec, weights, isa, 3);
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

TEST_CASE("all chunks") {
  std::vector<sample::Spec> specs;
  for (const sample::Cell& cell :
       {sample::plstm(), sample::lstm(), sample::leaky(), sample::nru()}) {
    sample::Spec spec;
    spec.cell = cell;
    specs.push_back(spec);
  }
  specs.emplace_back().input = "one_hot";
  for (int64_t width : {5, 16, 48}) {  // whole registers: float32 rows are read in place
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
  // This one is wide enough for threads to share the work of matrix products and cells.
  specs.emplace_back().H = 152;
  specs.back().layers = 1;
  specs.back().V = 700;
  for (const sample::Spec& spec : specs) {
    for (const Isa* isa : tsm::host_isas()) {
      for (const Weights weights : kAll) test_chunks(spec, weights, isa);
    }
  }
}

// Compares a chunk of several slices, which is read in place from an odd address up to the end of
// its memory, with the same chunk fed together with a second stream, so that its rows are copied.
TEST_CASE("rows where they lie") {
  constexpr int64_t T = 600;
  for (const sample::Cell& cell : {sample::plstm(), sample::nru()}) {
    for (const Isa* isa : tsm::host_isas()) {
      sample::Spec spec;
      spec.cell = cell;
      spec.family = "tagger";
      spec.input = "values";
      spec.I = 32;
      spec.scale = 0.1f;  // nru has no bounds
      const Made made = make(spec, Weights::kFloat32, isa);
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

}  // namespace
