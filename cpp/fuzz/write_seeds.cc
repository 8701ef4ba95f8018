// Writes valid inputs for the fuzzers to start from: write_seeds DIR fills DIR/model, /state and
// /text.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "../../tests/cpp/support/model_bytes.h"
#include "engine/stream.h"

namespace {

void write(const std::filesystem::path& path, char first, const void* data, int64_t size) {
  std::ofstream file(path, std::ios::binary);
  file.put(first);
  file.write(static_cast<const char*>(data), size);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_seeds DIR\n");
    return 2;
  }
  const std::filesystem::path folder(argv[1]);
  std::filesystem::create_directories(folder / "model");
  std::filesystem::create_directories(folder / "state");
  std::filesystem::create_directories(folder / "text");
  int number = 0;
  for (const auto& cell : {sample::plstm(), sample::lstm(), sample::leaky(), sample::nru()}) {
    for (const char* input : {"tokens", "one_hot", "values"}) {
      sample::Spec spec;
      spec.cell = cell;
      spec.input = input;
      spec.family = spec.input == "values" ? "classifier" : "lm";
      spec.dtype = number % 3 == 0 ? "F32" : number % 3 == 1 ? "BF16" : "I8";
      spec.H = 4;
      spec.layers = 1 + number % 2;
      const char* const kinds[] = {"word", "char", "char_ptb", "review"};
      spec.tokenizer = kinds[number % 4];
      spec.dictionary = "<unk> 3\n<eos> 2\na 1\n\\s 1\n\\u{85} 0\n";
      const sample::Writer writer(spec);
      const auto bytes = writer.file();
      const std::string name = std::to_string(number++);
      write(folder / "model" / ("file" + name), char(8 + 2 * (number % 3)), bytes.data(),
            writer.size);
      const std::string config = writer.config();
      write(folder / "model" / ("config" + name), char(1 + 2 * (number % 8)), config.data(),
            int64_t(config.size()));
    }
  }
  for (int which = 0; which < 2; ++which) {  // the two models whose tensors fuzz_model uses
    sample::Spec spec;
    if (which) {
      spec.cell = sample::nru();
      spec.input = "one_hot";
      spec.dtype = "I8";
    }
    const std::string config = sample::Writer(spec).config();
    write(folder / "model" / ("good" + std::to_string(which)), char(1 + 8 * which), config.data(),
          int64_t(config.size()));
  }
  const sample::Writer writer({});
  const auto bytes = writer.file();
  const auto stream =
      tsm::Model::from_memory(bytes.data(), writer.size, "seed", {})->create_stream();
  auto blob = stream->save();
  write(folder / "state" / "fresh", 0, blob.data(), int64_t(blob.size()));
  int64_t tokens[20];
  stream->generate(20, {}, tokens);
  blob = stream->save();
  write(folder / "state" / "later", 1, blob.data(), int64_t(blob.size()));
  using namespace std::string_literals;
  const std::string text =
      "<eos> 2\na 1\n\\s 1\n\\n 0\n\\u{e9} 0\n_ 7\ndo 1\nn't 1\n\0a \xc3\xa9_ Don't it's <br />\n3-a\n"s;
  for (char kind = 0; kind < 8; ++kind)
    write(folder / "text" / std::to_string(kind), kind, text.data(), int64_t(text.size()));
  return 0;
}
