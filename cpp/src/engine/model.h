// A model: what a .tsm file holds, packed for one kind of weights. Immutable once loaded; any
// number of threads may use it at once.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/cancel.h"
#include "core/error.h"
#include "engine/device/chunk.h"
#include "engine/file/model_info.h"
#include "kernels/cpu/isa.h"

namespace tsm {

enum class DeviceKind { kCpu, kCuda };

struct LoadOptions {
  DeviceKind device = DeviceKind::kCpu;
  Weights weights = Weights::kFloat32;  // kFloat64 is refused
  int threads = 1;
  const Isa* isa = nullptr;  // null: active_isa()
};

class Stream;
class Text;
struct Draw;
struct Generation;

// What one chunk (or generation) of a call was refused for. Its stream is as it was.
struct Failure {
  int64_t chunk;
  ErrorKind kind;
  std::string message;
};

// How a call on streams is made.
struct Call {
  // Polled before every slice (at most 256 rows on the CPU). Once set, the call ends with
  // kCancelled and every stream is as before it. Null: never.
  Cancel* cancel = nullptr;
  // Null: one bad chunk refuses the whole call. Else: it is added here, and the others are fed.
  std::vector<Failure>* failures = nullptr;
  bool alone = false;  // a stream's own call: errors name no chunk
};

class Model : public std::enable_shared_from_this<Model> {
 public:
  // tsm::Error (kBadFile) says what is wrong with the file, and where. Once loaded, the model does
  // not need the file; while it is read, it must not be truncated.
  static std::shared_ptr<const Model> load(const std::string& path, const LoadOptions& options);
  // The same from the bytes of such a file, at an 8-byte boundary. `name` stands in error messages.
  static std::shared_ptr<const Model> from_memory(const void* data, int64_t bytes,
                                                  const std::string& name,
                                                  const LoadOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Facts.
  Family family() const;
  bool takes_tokens() const;    // tokens below vocab_size(), or rows of input_size() floats
  int64_t vocab_size() const;   // 0 for float inputs
  int64_t input_size() const;   // 0 for tokens
  int64_t output_size() const;  // width of the logits
  bool takes_dt() const;        // every layer's cell takes a time step
  double shortest_dt() const;
  const std::string& arch() const;
  const std::vector<LayerInfo>& layers() const;
  uint64_t fingerprint() const;  // of config and weights, as stored in the file
  Weights weights() const;
  DeviceKind device() const;
  int threads() const;
  // Name of the instruction set that was packed for; of the GPU's architecture ("sm_90").
  const char* level() const;
  std::string_view config() const;       // the file's config, JSON
  const std::string& checksum() const;   // of the file, 8 hexadecimal digits
  const std::string& tokenizer() const;  // its kind; empty: the model is not one of text
  // A byte tensor of the file ("text.dict", "text.sentencepiece"); empty where there is none.
  std::string_view asset(const std::string& name) const;
  // tsm::Error where the file carries no dictionary, or one of a tokenizer that is not known here.
  const Text& text() const;

  // Floats of one stream's states, each padded to 64 bytes: layers in order, states in order.
  int64_t state_floats() const;
  // Bytes that one more stream takes in all: its states (twice on a GPU), and at most 256.
  int64_t stream_bytes() const;
  int64_t weight_bytes() const;  // of the packed matrices, where they are

  std::unique_ptr<Stream> create_stream() const;

  // Feeds chunk i to its stream. All inputs are checked first; on an error no stream has changed
  // (what is written to the outputs by then is undefined).
  void feed(const Chunk* chunks, int64_t count, const Call& call = {}) const;
  // log p(token i | everything before), the first from the current state; out [steps].
  // kLanguageModel.
  void score(Stream& stream, Tokens tokens, int64_t steps, const float* dt, float* out,
             Cancel* cancel = nullptr) const;
  // Draws tokens for many streams at once, each with settings of its own; on the CPU the same
  // tokens as of each stream alone. kLanguageModel. Errors as those of `feed`.
  void generate(const Generation* items, int64_t count, const Call& call = {}) const;

  // Parts of these calls, for who feeds step by step (engine/pool): tsm::Error where a chunk cannot
  // be fed, and tokens drawn from logits.
  void check(const Chunk& chunk) const;
  void draw(Draw* items, int64_t count) const;

  struct Impl;  // engine/impl.h

 private:
  friend class Stream;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// How tokens are drawn: softmax(logits / temperature), cut to the top_k most probable tokens, then
// to the fewest whose probabilities reach top_p (ties: the lower token first). The random number of
// a token depends on the seed and on the stream's position alone, so that generating n and then m
// tokens gives what generating n + m gives.
struct Sampling {
  double temperature = 1;  // 0: the most probable
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  uint64_t seed = 0;
};

// A token to draw from the logits [output_size()] of a stream at that position.
struct Draw {
  const float* logits = nullptr;
  Sampling sampling;
  int64_t position = 0;
  int64_t token = -1;  // what was drawn; -1: a logit is not finite
};

// What one stream generates: n tokens drawn one after the other, each fed before the next.
struct Generation {
  Stream* stream = nullptr;
  int64_t n = 0;
  Sampling sampling;
  float dt = 1;               // the time between them, where the model takes one
  int64_t* tokens = nullptr;  // [n]
};

}  // namespace tsm
