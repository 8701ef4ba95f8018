// A model: the contents of a .tsm file, packed for one kind of weights. It is immutable once
// loaded, and any number of threads may use it at once. Its calls compute in the default
// floating-point mode (core/arithmetic.h), whatever that of their thread is.
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
  int threads = 1;           // 0: one per core, at most 8, if a layer has 512 units or more; else 1
  const Isa* isa = nullptr;  // null: active_isa()
};

class Stream;
class Text;
struct Draw;
struct Generation;

// Why a chunk (or generation) of a call was refused. Its stream is unchanged.
struct Failure {
  int64_t chunk;
  ErrorKind kind;
  std::string message;
};

// Options of a call on streams.
struct Call {
  // Polled before every slice (at most 256 rows on the CPU). Once it is set, the call ends with
  // kCancelled and all streams are unchanged. May be null.
  Cancel* cancel = nullptr;
  // Null: one bad chunk fails the whole call. Otherwise its error is added here, and the others are
  // fed.
  std::vector<Failure>* failures = nullptr;
  bool alone = false;  // a stream's own call: errors name no chunk
};

class Model : public std::enable_shared_from_this<Model> {
 public:
  // Throws tsm::Error (kBadFile), which says what is wrong with the file, and where. A loaded model
  // does not need the file, but the file must not be truncated while it is read.
  static std::shared_ptr<const Model> load(const std::string& path, const LoadOptions& options);
  // Loads a model from the bytes of a .tsm file, which must begin at an 8-byte boundary. `name` is
  // used in error messages.
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
  // The instruction set that the weights are packed for, or the GPU's architecture ("sm_90").
  const char* level() const;
  std::string_view config() const;       // the file's config, JSON
  const std::string& checksum() const;   // of the file, 8 hexadecimal digits
  const std::string& tokenizer() const;  // its kind; empty if the model does not read text
  // A byte tensor of the file ("text.dict", "text.sentencepiece"); empty if there is none.
  std::string_view asset(const std::string& name) const;
  // Throws tsm::Error if the file has no dictionary, or if its tokenizer is not supported here.
  const Text& text() const;

  // The number of floats in one stream's states, each padded to 64 bytes: layers in order, states
  // in order.
  int64_t state_floats() const;
  // The total memory of one more stream: its states (twice on a GPU), plus at most 256 bytes.
  int64_t stream_bytes() const;
  int64_t weight_bytes() const;  // of the packed matrices, on their device

  std::unique_ptr<Stream> create_stream() const;

  // Feeds each chunk to its stream. All inputs are checked first. On an error no stream changes,
  // and the contents of the outputs are undefined.
  void feed(const Chunk* chunks, int64_t count, const Call& call = {}) const;
  // out [steps]: log p(token i | all before it), starting from the current state. Only for
  // a kLanguageModel.
  void score(Stream& stream, Tokens tokens, int64_t steps, const float* dt, float* out,
             Cancel* cancel = nullptr) const;
  // Draws tokens for many streams at once, each with its own settings. On the CPU the tokens are
  // the same as for each stream alone. Only for a kLanguageModel. Errors are as in `feed`.
  void generate(const Generation* items, int64_t count, const Call& call = {}) const;

  // Parts of these calls, for feeding step by step (engine/pool). `check` throws tsm::Error if a
  // chunk cannot be fed; `draw` draws tokens from logits.
  void check(const Chunk& chunk) const;
  void draw(Draw* items, int64_t count) const;

  struct Impl;  // engine/impl.h

 private:
  friend class Stream;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// How tokens are drawn: from softmax(logits / temperature), restricted to the top_k most probable
// tokens, then to the fewest whose probabilities reach top_p (in ties, the lower token goes first).
// The random number of a token depends only on the seed and the stream's position, so that
// generating n and then m tokens equals generating n + m.
struct Sampling {
  double temperature = 1;  // 0: the most probable
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  uint64_t seed = 0;
};

// A token to draw from logits [output_size()] for a stream at `position`.
struct Draw {
  const float* logits = nullptr;
  Sampling sampling;
  int64_t position = 0;
  int64_t token = -1;  // what was drawn; -1: a logit is not finite
};

// What one stream generates: n tokens, each drawn and fed before the next.
struct Generation {
  Stream* stream = nullptr;
  int64_t n = 0;
  Sampling sampling;
  float dt = 1;               // the time step, if the model takes one
  int64_t* tokens = nullptr;  // [n]
};

}  // namespace tsm
