// Continues a text: reads it from stdin and writes it with N more tokens from the model.
//
//   printf 'the old sailor' | complete model.tsm 20 1
//
// The model file contains its dictionary, so the program can read and write text. The last number
// is the seed: the same one gives the same text.
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <tsm/tsm.hpp>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: complete MODEL N SEED < TEXT\n";
    return 2;
  }
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  try {
    const auto model = tsm::Model::load(argv[1]);
    auto stream = model.create_stream();
    std::vector<std::int64_t> tokens = model.encode(text);
    stream.score(tokens);  // feeds them; the scores are not needed here
    tsm::Sampling sampling;
    sampling.seed = std::strtoull(argv[3], nullptr, 10);
    const auto more = stream.generate(std::strtoull(argv[2], nullptr, 10), sampling);
    tokens.insert(tokens.end(), more.begin(), more.end());
    std::cout << model.decode(tokens) << '\n';
  } catch (const tsm::Error& error) {
    std::cerr << "complete: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
