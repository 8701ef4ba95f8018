// A model computes the same bits whatever floating-point mode the program has set, and leaves that
// mode as it was. Without that, the bits would also depend on the number of threads, which are
// started in the mode that their creator has at that time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "core/arithmetic.h"
#include "support/check.h"
#include "support/fed_models.h"

using namespace fed;
using tsm::Arithmetic;

namespace {

struct Mode {
  const char* name;
  tsm::ArithmeticMode mode;
};
#if defined(__x86_64__)
constexpr Mode kModes[] = {
    {"default", 0x1f80}, {"rounding up", 0x5f80}, {"overflow and division by 0 trap", 0x1900}};
#elif defined(__aarch64__)
constexpr Mode kModes[] = {{"default", 0}, {"rounding up", 1 << 22}};
#else
constexpr Mode kModes[] = {{"default", 0}};
#endif

struct Results {
  std::vector<float> logits, scores;
  std::vector<int64_t> drawn;
  std::vector<uint8_t> end;
  bool operator==(const Results& other) const {
    return same(logits, other.logits) && same(scores, other.scores) && drawn == other.drawn &&
           end == other.end;
  }
};

Results results_of(const Model& model, const Input& input) {
  constexpr int64_t T = 66, V = 700;
  Results found{std::vector<float>(T * V), std::vector<float>(T), std::vector<int64_t>(9), {}};
  const auto stream = model.create_stream();
  Chunk chunk = input.chunk(*stream, 0, T, found.logits.data());
  chunk.scores = found.scores.data();
  model.feed(&chunk, 1);
  stream->generate(9, {0.8, 300, 0.9, 4}, found.drawn.data());
  found.end = all_of(*stream);
  return found;
}

// The bits in all modes, with models loaded before and in each mode.
void check_modes(const sample::Spec& spec, Weights weights, const Isa* isa) {
  const sample::Writer writer(spec);
  const std::vector<uint64_t> bytes = writer.file();
  const auto load = [&](int threads) {
    LoadOptions options;
    options.weights = weights;
    options.threads = threads;
    options.isa = isa;
    return Model::from_memory(bytes.data(), writer.size, "sample", options);
  };
  const auto one = load(1), three = load(3);
  const Input input(*one, 66, 5);
  const Results expected = results_of(*one, input);
  for (const Mode& mode : kModes) {
    INFO(std::string(mode.name));
    bool kept, before, shared, loaded;
    {
      const Arithmetic program(mode.mode);
      before = results_of(*one, input) == expected;
      shared = results_of(*three, input) == expected;
      loaded = results_of(*load(3), input) == expected;
      kept = Arithmetic::current() == mode.mode;
    }
    CHECK(before);
    CHECK(shared);
    CHECK(loaded);
    CHECK(kept);
  }
}

TEST_CASE("the program's floating-point mode") {
  std::vector<sample::Spec> specs;
  for (const sample::Cell& cell : {sample::plstm(), sample::leaky(), sample::nru()}) {
    specs.emplace_back().cell = cell;
    specs.back().V = 700;
    if (!cell.program.empty()) specs.back().H = 152;  // wide enough for threads to share the work
    specs.back().layers = 1;
  }
  specs.back().scale = 0.1f;  // nru has no bounds
  for (const sample::Spec& spec : specs)
    for (const Isa* isa : tsm::host_isas())
      for (const Weights weights : kAll) check_modes(spec, weights, isa);
}

// States that fade become 0, and not subnormal numbers, which are slow on many processors.
TEST_CASE("fading states") {
  sample::Spec spec;
  spec.cell = sample::leaky();
  spec.family = "tagger";
  spec.input = "values";
  spec.V = 700;
  spec.I = 16;
  spec.layers = 1;
  spec.scale = 1e-3f;
  sample::Writer writer(spec);
  std::string& bias = writer.all.at("layers.0.bias").data;
  std::fill(bias.begin(), bias.end(), '\0');
  const std::vector<uint64_t> bytes = writer.file();
  for (const Isa* isa : tsm::host_isas()) {
    LoadOptions options;
    options.isa = isa;
    const auto model = Model::from_memory(bytes.data(), writer.size, "fading", options);
    const auto after = [&] {
      std::vector<float> values(66 * 16);
      values[3] = 1;
      const auto stream = model->create_stream();
      Chunk chunk;
      chunk.stream = stream.get();
      chunk.values = values.data();
      chunk.steps = 66;
      model->feed(&chunk, 1);
      return stream->get_states();
    };
    const std::vector<float> expected = after();
    const auto subnormal = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; };
    CHECK(std::none_of(expected.begin(), expected.end(), subnormal));
    CHECK(std::count(expected.begin(), expected.end(), 0.0f) > 0);
    for (const Mode& mode : kModes) {
      INFO(std::string(mode.name));
      const Arithmetic program(mode.mode);
      const bool equal = same(after(), expected);
      CHECK(equal);
    }
  }
}

// The unused lanes of the last register overflow where all logits are low, which must not trap.
TEST_CASE("unused lanes") {
  sample::Spec spec;
  sample::Writer writer(spec);
  std::string& bias = writer.all.at("output.bias").data;
  const float low = -200;
  for (size_t at = 0; at < bias.size(); at += 4) std::memcpy(&bias[at], &low, 4);
  const std::vector<uint64_t> bytes = writer.file();
  for (const Isa* isa : tsm::host_isas()) {
    LoadOptions options;
    options.isa = isa;
    const auto model = Model::from_memory(bytes.data(), writer.size, "low", options);
    const Input input(*model, 5, 1);
    float scores[2][5] = {};
    for (float* const out : scores) {
      const auto stream = model->create_stream();
      const Arithmetic program(out == scores[0] ? tsm::kEngineArithmetic
                                                : std::end(kModes)[-1].mode);
      model->score(*stream, input.tokens.data(), 5, input.dt.data(), out);
    }
    CHECK(std::memcmp(scores[0], scores[1], sizeof scores[0]) == 0);
  }
}

}  // namespace
