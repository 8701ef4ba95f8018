// A loaded model keeps working when its file is truncated or deleted: `cp new.tsm model.tsm`
// truncates the file before writing it.
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/stream.h"
#include "support/check.h"
#include "support/model_bytes.h"
#include "support/temporary_file.h"

namespace {

using tsm::Model;

std::vector<float> logits_of(const Model& model) {
  const std::vector<int64_t> tokens{3, 1, 4, 1, 5, 9};
  std::vector<float> logits(tokens.size() * size_t(model.output_size()));
  const auto stream = model.create_stream();
  tsm::Chunk chunk;
  chunk.stream = stream.get();
  chunk.tokens = tokens.data();
  chunk.steps = int64_t(tokens.size());
  chunk.logits = logits.data();
  model.feed(&chunk, 1);
  return logits;
}

void test_file_cut_after_loading(const sample::Spec& spec, tsm::Weights weights) {
  sample::Writer writer(spec);
  const std::string dictionary = "the 3\nold 2\nsailor 1\n";
  writer.all["text.dict"] = {"U8", {int64_t(dictionary.size())}, dictionary};
  const auto bytes = writer.file();
  const TemporaryFile file(bytes.data(), writer.size);
  tsm::LoadOptions options;
  options.weights = weights;
  const auto model = Model::load(file.path(), options);
  const std::vector<float> expected = logits_of(*model);
  CHECK(::truncate(file.path().c_str(), 0) == 0);
  CHECK(logits_of(*model) == expected);
  CHECK(model->asset("text.dict") == dictionary);
  CHECK(model->asset("text.none").empty());
  CHECK(model->config() == writer.config());
}

}  // namespace

TEST_CASE("a file that is cut after loading") {
  for (const auto& cell : {sample::plstm(), sample::leaky(), sample::nru()}) {
    for (const char* input : {"tokens", "one_hot"}) {
      for (const char* dtype : {"F32", "BF16", "I8"}) {
        for (const auto weights : {tsm::Weights::kFloat32, tsm::Weights::kInt8}) {
          sample::Spec spec;
          spec.cell = cell;
          spec.input = input;
          spec.dtype = dtype;
          test_file_cut_after_loading(spec, weights);
        }
      }
    }
  }
}
