#include "engine/model.h"

#include <algorithm>

#include "core/arithmetic.h"
#include "core/error.h"
#include "core/files/mapped_file.h"
#include "engine/cpu/device.h"
#include "engine/cuda/make_device.h"
#include "engine/feed.h"
#include "engine/generate.h"
#include "engine/impl.h"
#include "engine/sampling.h"
#include "engine/stream.h"

namespace tsm {
namespace {

constexpr int kMostThreads = 1024;
// If the number of threads is left to the library: narrower layers gain nothing from a second
// thread, and more threads than this have not been measured.
constexpr int64_t kWideLayer = 512;
constexpr int kMostChosenThreads = 8;

const LoadOptions& checked(const LoadOptions& options) {
  require(options.weights != Weights::kFloat64,
          "dtype is float64; accepted: float32, bfloat16, int8");
  require(options.threads >= 0 && options.threads <= kMostThreads,
          "threads = " + std::to_string(options.threads) + "; accepted: 0 to " +
              std::to_string(kMostThreads));
  return options;
}

int threads_of(const LoadOptions& options, const Config& config) {
  if (options.threads > 0) return options.threads;
  const bool wide =
      std::any_of(config.layers.begin(), config.layers.end(),
                  [](const LayerConfig& layer) { return layer.hidden_size >= kWideLayer; });
  const bool cpu = options.device == DeviceKind::kCpu;
  return cpu && wide ? std::min(usable_cores(), kMostChosenThreads) : 1;
}

StateParts parts_of(const Config& config, const StateLayout& layout) {
  StateParts parts;
  for (size_t l = 0; l < config.layers.size(); ++l) {
    const auto& states = config.layers[l].states;
    for (size_t s = 0; s < states.size(); ++s) parts.push_back({layout.at[l][s], states[s].width});
  }
  return parts;
}

}  // namespace

Model::Impl::Impl(const ModelFile& file, const LoadOptions& options)
    : config(file.config()),
      assets(file.assets()),
      isa(options.isa ? *options.isa : active_isa()),
      weights(checked(options).weights),
      states(config),
      parts(parts_of(config, states)),
      kind(options.device),
      pool(threads_of(options, config)) {
  for (const LayerConfig& layer : config.layers) {
    infos.push_back({layer.cell, layer.input_size, layer.hidden_size, layer.states, false});
    takes_dt = takes_dt && layer.names.takes_dt;
    shortest_dt = std::max(shortest_dt, layer.shortest_dt);
  }
  if (kind == DeviceKind::kCuda)
    device = make_cuda_device(file, states, weights);
  else
    device = std::make_unique<CpuDevice>(file, config, states, isa, weights, pool);
  for (size_t i = 0; i < infos.size(); ++i) infos[i].interpreted = device->interprets(int64_t(i));
  file.check_rest();
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const std::string& path, const LoadOptions& options) {
  checked(options);
  const Arithmetic arithmetic;
  const MappedFile mapped = MappedFile::open(path);
  return std::shared_ptr<Model>(new Model(std::make_unique<Impl>(ModelFile(mapped), options)));
}

std::shared_ptr<const Model> Model::from_memory(const void* data, int64_t bytes,
                                                const std::string& name,
                                                const LoadOptions& options) {
  checked(options);
  const Arithmetic arithmetic;
  const MappedFile view = MappedFile::view(data, bytes, name);
  return std::shared_ptr<Model>(new Model(std::make_unique<Impl>(ModelFile(view), options)));
}

Family Model::family() const { return impl_->config.family; }
bool Model::takes_tokens() const { return impl_->config.input != Config::Input::kValues; }
int64_t Model::vocab_size() const { return impl_->config.vocab_size; }
int64_t Model::input_size() const { return takes_tokens() ? 0 : impl_->config.input_width; }
int64_t Model::output_size() const { return impl_->config.output_size; }
bool Model::takes_dt() const { return impl_->takes_dt; }
double Model::shortest_dt() const { return impl_->shortest_dt; }
const std::string& Model::arch() const { return impl_->config.arch; }
const std::vector<LayerInfo>& Model::layers() const { return impl_->infos; }
uint64_t Model::fingerprint() const { return impl_->config.fingerprint; }
Weights Model::weights() const { return impl_->weights; }
DeviceKind Model::device() const { return impl_->kind; }
int Model::threads() const { return impl_->pool.threads(); }
const char* Model::level() const { return impl_->device->name(); }
std::string_view Model::config() const { return impl_->config.text; }
const std::string& Model::checksum() const { return impl_->config.checksum; }
const std::string& Model::tokenizer() const { return impl_->config.tokenizer; }

std::string_view Model::asset(const std::string& name) const {
  const auto found = impl_->assets.find(name);
  if (found == impl_->assets.end()) return {};
  return found->second;
}

const Text& Model::text() const {
  return impl_->text.get([this] {
    const Config& config = impl_->config;
    require(!config.tokenizer.empty() && !asset("text.dict").empty(),
            "the model has no dictionary; accepted: a model that was trained on text");
    return std::make_unique<const Text>(config.tokenizer, asset("text.dict"), config.vocab_size);
  });
}

int64_t Model::state_floats() const { return impl_->states.floats; }

int64_t Model::stream_bytes() const {
  // The object, its block of states, and the allocator's bookkeeping for both.
  constexpr int64_t kBookkeeping = 2 * 16 + kAlignment;
  return impl_->device->slot_bytes() + int64_t(sizeof(Stream)) + kBookkeeping;
}

int64_t Model::weight_bytes() const { return impl_->device->weight_bytes(); }

std::unique_ptr<Stream> Model::create_stream() const {
  return std::unique_ptr<Stream>(new Stream(shared_from_this()));
}

void Model::feed(const Chunk* chunks, int64_t count, const Call& call) const {
  if (count < 0 || (!chunks && count > 0)) {
    throw Error("count = " + std::to_string(count) + "; accepted: 0 or more, with chunks");
  }
  const Arithmetic arithmetic;
  const Lease<Workspace> workspace(impl_->workspaces);
  Feed(*this, *impl_, *workspace).run(chunks, count, call);
}

void Model::score(Stream& stream, Tokens tokens, int64_t steps, const float* dt, float* out,
                  Cancel* cancel) const {
  if (family() != Family::kLanguageModel) throw Error("score needs a language model");
  if (!out && steps > 0) throw Error("out is null; accepted: room for one number per token");
  Chunk chunk;
  chunk.stream = &stream;
  chunk.tokens = tokens;
  chunk.steps = steps;
  chunk.dt = dt;
  chunk.scores = out;
  feed(&chunk, 1, {cancel, nullptr, true});
}

void Model::check(const Chunk& chunk) const {
  const Arithmetic arithmetic;
  const Lease<Workspace> workspace(impl_->workspaces);
  Feed(*this, *impl_, *workspace).check(chunk, -1);
}

void Model::draw(Draw* items, int64_t count) const {
  const Arithmetic arithmetic;
  const Lease<Workspace> workspace(impl_->workspaces);
  draw_each(*impl_, *workspace, count, [&](int64_t i, double* weights, int64_t* heap) {
    Draw& item = items[i];
    const double random = uniform(item.sampling.seed, item.position);
    item.token = tsm::draw(item.logits, output_size(), item.sampling, random, weights, heap);
  });
}

void Model::generate(const Generation* items, int64_t count, const Call& call) const {
  if (count < 0 || (!items && count > 0)) {
    throw Error("count = " + std::to_string(count) + "; accepted: 0 or more, with generations");
  }
  const Arithmetic arithmetic;
  const Lease<Workspace> own(impl_->workspaces), fed(impl_->workspaces);
  Generator(*this, *impl_, *own, *fed).run(items, count, call);
}

}  // namespace tsm
