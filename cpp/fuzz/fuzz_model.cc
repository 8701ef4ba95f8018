// Runs the model reader on arbitrary bytes: it must accept them or throw tsm::Error, and feeding an
// accepted model must work. The first byte selects what the rest is: a whole file, a whole file
// whose checksum is corrected, or only the config of a file with good tensors. The latter two get
// the fuzzer further.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../../tests/cpp/support/model_bytes.h"
#include "core/error.h"
#include "engine/stream.h"
#include "engine/text/text.h"

namespace {

void use(const void* data, int64_t size, tsm::Weights weights) {
  try {
    tsm::LoadOptions options;
    options.weights = weights;
    const auto model = tsm::Model::from_memory(data, size, "fuzz", options);
    const auto stream = model->create_stream();
    const int64_t tokens[3] = {0, model->vocab_size() - 1, 0};
    const std::vector<float> values(size_t(3 * model->input_size()), 0.5f);
    std::vector<float> logits(size_t(model->output_size()));
    tsm::Chunk chunk;
    chunk.stream = stream.get();
    if (model->takes_tokens())
      chunk.tokens = tokens;
    else
      chunk.values = values.data();
    chunk.steps = 3;
    chunk.logits = logits.data();
    chunk.last_only = true;
    model->feed(&chunk, 1);
    const auto blob = stream->save();
    stream->load(blob.data(), int64_t(blob.size()));
    const auto words = model->text().encode("a b\n<unk> <eos>");
    model->text().decode(words.data(), words.size());
  } catch (const tsm::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto weights = tsm::Weights(data[0] / 2 % 3);
  if (data[0] % 2) {
    static const sample::Writer writers[] = {sample::Writer({}), sample::Writer([] {
                                               sample::Spec spec;
                                               spec.cell = sample::nru();
                                               spec.input = "one_hot";
                                               spec.dtype = "I8";
                                               return spec;
                                             }())};
    const sample::Writer& writer = writers[data[0] / 8 % 2];
    const auto file = writer.file(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
    use(file.data(), writer.size, weights);
    return 0;
  }
  std::vector<uint64_t> aligned((size + 7) / 8);
  const int64_t bytes = int64_t(size) - 1;
  std::memcpy(aligned.data(), data + 1, size - 1);
  auto* file = reinterpret_cast<uint8_t*>(aligned.data());
  if (data[0] / 8 % 2 && !tsm::stated_checksum(file, bytes).empty()) sample::seal(file, bytes);
  use(file, bytes, weights);
  return 0;
}
