// Streams int64 tokens [N, T] through a TorchScript file in chunks of 1, 4 and 2 steps, then the
// rest.
//
//   client MODEL TOKENS N T LOGITS      writes float32 [N, T, V]; prints the file's tsm.json

#include <torch/script.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const int64_t n = std::stoll(argv[3]), steps = std::stoll(argv[4]);
  try {
    torch::InferenceMode guard;
    torch::jit::ExtraFilesMap extra{{"tsm.json", ""}};
    torch::jit::Module model = torch::jit::load(argv[1], torch::kCPU, extra);
    std::cout << extra["tsm.json"] << '\n';

    torch::Tensor x = torch::empty({n, steps}, torch::kInt64);
    std::ifstream(argv[2], std::ios::binary)
        .read(reinterpret_cast<char*>(x.data_ptr<int64_t>()), x.nbytes());

    torch::IValue state;  // None: every stream begins with zero states
    std::vector<torch::Tensor> parts;
    const std::vector<int64_t> sizes = {1, 4, 2, steps};
    int64_t start = 0;
    for (int64_t size : sizes) {
      const int64_t end = std::min(start + size, steps);
      auto result = model.forward({x.slice(1, start, end), /*lengths=*/{}, state}).toTuple();
      parts.push_back(result->elements()[0].toTensor());
      state = result->elements()[1];
      start = end;
    }
    const torch::Tensor logits = torch::cat(parts, 1).contiguous();
    std::ofstream(argv[5], std::ios::binary)
        .write(reinterpret_cast<const char*>(logits.data_ptr<float>()), logits.nbytes());
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
