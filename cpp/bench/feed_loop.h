// Streams fed from C++ in a loop: what the runtime costs without Python.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model.h"
#include "engine/stream.h"

namespace tsm::bench {

// "float32", "bfloat16" or "int8"; "cpu" or "cuda".
LoadOptions options_of(const std::string& dtype, int threads, const std::string& device = "cpu");

// `streams` streams of the model in `path`; a call feeds each of them `steps` random inputs of its
// own.
class FeedLoop {
 public:
  FeedLoop(const std::string& path, const LoadOptions& options, int64_t streams, int64_t steps);

  double run(int64_t calls);  // seconds
  const Model& model() const { return *model_; }

 private:
  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<int64_t> tokens_;
  std::vector<float> values_, logits_;
  std::vector<Chunk> chunks_;
};

// Bytes of memory that one more stream takes, as the allocator counts them; 0 where it cannot be
// asked.
int64_t stream_bytes(const Model& model);

}  // namespace tsm::bench
