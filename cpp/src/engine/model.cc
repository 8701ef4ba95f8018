#include "engine/model.h"

#include <algorithm>

#include "core/error.h"
#include "core/files/mapped_file.h"
#include "engine/feed.h"
#include "engine/generate.h"
#include "engine/impl.h"
#include "engine/stream.h"

namespace tsm {
namespace {

constexpr int kMostThreads = 1024;

const LoadOptions& checked(const LoadOptions& options) {
  require(options.weights != Weights::kFloat64,
          "dtype is float64; accepted: float32, bfloat16, int8");
  require(options.threads >= 1 && options.threads <= kMostThreads,
          "threads = " + std::to_string(options.threads) + "; accepted: 1 to " +
              std::to_string(kMostThreads));
  return options;
}

}  // namespace

Model::Parts::Parts(const ModelFile& file, const LoadOptions& options)
    : config(file.config()),
      assets(file.assets()),
      level(options.level ? *options.level : active_level()),
      weights(checked(options).weights),
      states(config),
      pool(options.threads) {
  for (const LayerConfig& layer : config.layers) {
    infos.push_back({layer.cell, layer.input_size, layer.hidden_size, layer.states, false});
    takes_dt = takes_dt && layer.names.takes_dt;
    shortest_dt = std::max(shortest_dt, layer.shortest_dt);
  }
  if (options.device == DeviceKind::kCuda) {
    device = make_cuda_device(file, states, weights);
  } else {
    load_cpu(file);
  }
  file.check_rest();
}

void Model::Parts::load_cpu(const ModelFile& file) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    layers.push_back(Layer::load(file, int64_t(i), level, weights, states.at[i][0]));
    infos[i].interpreted = layers.back()->interpreted();
  }
  if (config.input == Config::Input::kTokens) {
    embedding = Embedding(file.matrix("embedding", config.vocab_size, config.input_width));
  }
  head = std::make_unique<Head>(file, level, weights);
}

Model::Model(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const std::string& path, const LoadOptions& options) {
  checked(options);
  const MappedFile mapped = MappedFile::open(path);
  return std::shared_ptr<Model>(new Model(std::make_unique<Parts>(ModelFile(mapped), options)));
}

std::shared_ptr<const Model> Model::from_memory(const void* data, int64_t bytes,
                                                const std::string& name,
                                                const LoadOptions& options) {
  checked(options);
  const MappedFile view = MappedFile::view(data, bytes, name);
  return std::shared_ptr<Model>(new Model(std::make_unique<Parts>(ModelFile(view), options)));
}

Family Model::family() const { return parts_->config.family; }
bool Model::takes_tokens() const { return parts_->config.input != Config::Input::kValues; }
int64_t Model::vocab_size() const { return parts_->config.vocab_size; }
int64_t Model::input_size() const { return takes_tokens() ? 0 : parts_->config.input_width; }
int64_t Model::output_size() const { return parts_->config.output_size; }
bool Model::takes_dt() const { return parts_->takes_dt; }
double Model::shortest_dt() const { return parts_->shortest_dt; }
const std::string& Model::arch() const { return parts_->config.arch; }
const std::vector<LayerInfo>& Model::layers() const { return parts_->infos; }
uint64_t Model::fingerprint() const { return parts_->config.fingerprint; }
Weights Model::weights() const { return parts_->weights; }
DeviceKind Model::device() const { return parts_->device ? DeviceKind::kCuda : DeviceKind::kCpu; }
int Model::threads() const { return parts_->pool.threads(); }
const char* Model::level() const {
  return parts_->device ? parts_->device->name() : parts_->level.name;
}
std::string_view Model::config() const { return parts_->config.text; }
const std::string& Model::checksum() const { return parts_->config.checksum; }
const std::string& Model::tokenizer() const { return parts_->config.tokenizer; }

std::string_view Model::asset(const std::string& name) const {
  const auto found = parts_->assets.find(name);
  if (found == parts_->assets.end()) return {};
  return found->second;
}

const Text& Model::text() const {
  return parts_->text.get([this] {
    const Config& config = parts_->config;
    require(!config.tokenizer.empty() && !asset("text.dict").empty(),
            "the model carries no dictionary; accepted: a model that was trained on text");
    return std::make_unique<const Text>(config.tokenizer, asset("text.dict"), config.vocab_size);
  });
}

int64_t Model::state_floats() const { return parts_->states.floats; }

int64_t Model::stream_bytes() const {
  // The object, its block of states, and what an allocator needs to keep track of the two.
  constexpr int64_t kBookkeeping = 2 * 16 + kAlignment;
  const int64_t sides = parts_->device ? 2 : 1;
  return sides * state_floats() * 4 + int64_t(sizeof(Stream)) + kBookkeeping;
}

int64_t Model::weight_bytes() const {
  if (parts_->device) return parts_->device->weight_bytes();
  int64_t total = parts_->head->weight_bytes();
  for (const auto& layer : parts_->layers) total += layer->weight_bytes();
  return total;
}

std::unique_ptr<Stream> Model::create_stream() const {
  return std::unique_ptr<Stream>(new Stream(shared_from_this()));
}

void Model::feed(const Chunk* chunks, int64_t count, const Call& call) const {
  if (count < 0 || (!chunks && count > 0)) {
    throw Error("count = " + std::to_string(count) + "; accepted: 0 or more, with chunks");
  }
  const Lease<Workspace> workspace(parts_->workspaces);
  Feed(*this, *parts_, *workspace).run(chunks, count, call);
}

void Model::score(Stream& stream, Tokens tokens, int64_t steps, const float* dt, float* out,
                  Cancel* cancel) const {
  if (family() != Family::kLanguageModel) throw Error("score needs a language model");
  if (!out && steps > 0) throw Error("out is null; accepted: room for one number a token");
  Chunk chunk;
  chunk.stream = &stream;
  chunk.tokens = tokens;
  chunk.steps = steps;
  chunk.dt = dt;
  chunk.scores = out;
  feed(&chunk, 1, {cancel, nullptr, true});
}

void Model::generate(const Generation* items, int64_t count, const Call& call) const {
  if (count < 0 || (!items && count > 0)) {
    throw Error("count = " + std::to_string(count) + "; accepted: 0 or more, with generations");
  }
  const Lease<Workspace> own(parts_->workspaces), fed(parts_->workspaces);
  Generator(*this, *parts_, *own, *fed).run(items, count, call);
}

}  // namespace tsm
