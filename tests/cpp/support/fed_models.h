// Loaded models from model_bytes.h, and inputs for them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/stream.h"
#include "model_bytes.h"

namespace fed {

using tsm::Chunk;
using tsm::Isa;
using tsm::LoadOptions;
using tsm::Model;
using tsm::Stream;
using tsm::Weights;

inline constexpr Weights kAll[] = {Weights::kFloat32, Weights::kBFloat16, Weights::kInt8};

struct Made {
  std::shared_ptr<const Model> model;
};

inline Made make(const sample::Spec& spec, Weights weights = Weights::kFloat32,
                 const Isa* isa = nullptr, int threads = 1) {
  const sample::Writer writer(spec);
  std::vector<uint64_t> bytes = writer.file();
  LoadOptions options;
  options.weights = weights;
  options.threads = threads;
  options.isa = isa;
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
inline std::vector<uint8_t> all_of(const Stream& stream) { return stream.save(); }

inline bool same(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0;  // memcmp takes no null
}

}  // namespace fed
