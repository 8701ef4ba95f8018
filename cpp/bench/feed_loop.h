// Feeds streams from C++ in a loop, to measure the runtime without Python.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model.h"
#include "engine/stream.h"

namespace tsm::bench {

// dtype: "float32", "bfloat16" or "int8". device: "cpu" or "cuda".
LoadOptions options_of(const std::string& dtype, int threads, const std::string& device = "cpu");

// Loads the model in `path` and creates `streams` streams. Each call feeds every stream its own
// `steps` random inputs. last_only: as in Chunk.
class FeedLoop {
 public:
  FeedLoop(const std::string& path, const LoadOptions& options, int64_t streams, int64_t steps,
           bool last_only = false);

  double run(int64_t calls);  // seconds
  // The same chunks through a pool: a request per chunk, two of them queued for each stream.
  double run_pool(int64_t chunks);
  const Model& model() const { return *model_; }

 private:
  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<int64_t> tokens_;
  std::vector<float> values_, logits_;
  std::vector<Chunk> chunks_;
};

// The memory that one more stream takes, in bytes, as reported by the allocator; 0 if it reports
// nothing.
int64_t stream_bytes(const Model& model);

}  // namespace tsm::bench
