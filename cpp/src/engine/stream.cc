#include "engine/stream.h"

#include <cstring>

#include "core/error.h"
#include "engine/feed.h"
#include "engine/parts.h"
#include "engine/sampling.h"
#include "engine/state_blob.h"

namespace tsm {
namespace {

// Every state of a stream, in the order of the blob.
std::vector<StatePart> parts_of(const Model::Parts& model, float* memory) {
  std::vector<StatePart> parts;
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const auto& states = model.infos[l].states;
    for (size_t s = 0; s < states.size(); ++s) {
      parts.push_back({memory + model.layers[l]->state_at(int64_t(s)), states[s].width});
    }
  }
  return parts;
}

}  // namespace

Stream::Stream(std::shared_ptr<const Model> model)
    : model_(std::move(model)), memory_(model_->state_floats()) {}

Stream::~Stream() = default;

const float* Stream::state(int64_t layer, int64_t state) const {
  const Model::Parts& parts = *model_->parts_;
  if (layer < 0 || layer >= int64_t(parts.layers.size())) {
    throw Error("layer = " + std::to_string(layer) + "; accepted: 0 to " +
                std::to_string(parts.layers.size() - 1));
  }
  const auto& states = parts.infos[size_t(layer)].states;
  if (state < 0 || state >= int64_t(states.size())) {
    throw Error("state = " + std::to_string(state) + "; accepted: 0 to " +
                std::to_string(states.size() - 1));
  }
  return memory_.data() + parts.layers[size_t(layer)]->state_at(state);
}

int64_t Stream::blob_bytes() const {
  int64_t floats = 0;
  for (const StatePart& part : parts_of(*model_->parts_, memory_.data())) floats += part.width;
  return state_blob_bytes(floats);
}

std::vector<uint8_t> Stream::save() const {
  std::vector<uint8_t> blob(static_cast<size_t>(blob_bytes()));
  save(blob.data());
  return blob;
}

void Stream::save(uint8_t* blob) const {
  Hold hold;
  hold.add(*this);
  const auto parts = parts_of(*model_->parts_, memory_.data());
  write_state({model_->fingerprint(), position_, time_}, parts.data(), int64_t(parts.size()), blob);
}

void Stream::load(const uint8_t* blob, int64_t bytes) {
  Hold hold;
  hold.add(*this);
  const auto parts = parts_of(*model_->parts_, memory_.data());
  const StateHeader header =
      read_state(blob, bytes, model_->fingerprint(), parts.data(), int64_t(parts.size()));
  position_ = header.position;
  time_ = header.time;
}

std::unique_ptr<Stream> Stream::fork() const {
  Hold hold;
  hold.add(*this);
  std::unique_ptr<Stream> copy(new Stream(model_));
  std::memcpy(copy->memory_.data(), memory_.data(), size_t(memory_.size()) * 4);
  copy->position_ = position_;
  copy->time_ = time_;
  return copy;
}

void Stream::reset() {
  Hold hold;
  hold.add(*this);
  std::memset(memory_.data(), 0, size_t(memory_.size()) * 4);
  position_ = 0;
  time_ = 0;
}

void Stream::generate(int64_t n, const Sampling& sampling, int64_t* out, float dt) {
  const Model::Parts& parts = *model_->parts_;
  if (model_->family() != Family::kLanguageModel) throw Error("generate needs a language model");
  if (n < 0 || (!out && n > 0)) throw Error("n = " + std::to_string(n) + "; accepted: 0 or more");
  check(sampling);
  if (n == 0) return;
  const Lease outer(parts.workspaces), inner(parts.workspaces);
  const int64_t count = model_->output_size();
  Workspace& memory = *outer;
  memory.logits.reserve(count);
  memory.weights.reserve(count);
  memory.candidates.reserve(count);
  memory.backup.reserve(parts.state_floats);
  Feed feed(*model_, parts, *inner);
  Chunk chunk;
  chunk.stream = this;
  chunk.logits = memory.logits.data();
  chunk.last_only = true;
  int64_t token = 0;
  if (dt != 1) {  // checked as any other
    Chunk with_dt = chunk;
    with_dt.tokens = &token;
    with_dt.dt = &dt;
    with_dt.steps = 1;
    feed.check(with_dt);
    chunk.dt = &dt;
  }
  Hold hold(&memory);
  hold.add(&chunk, 1);
  const int64_t position = position_;
  const double time = time_;
  std::memcpy(memory.backup.data(), memory_.data(), size_t(parts.state_floats) * 4);
  const auto put_back = [&] {
    std::memcpy(memory_.data(), memory.backup.data(), size_t(parts.state_floats) * 4);
    position_ = position;
    time_ = time;
  };
  try {
    feed.run_checked(&chunk, 1);  // no step: the logits of the state as it is
    chunk.steps = 1;
    for (int64_t i = 0; i < n; ++i) {
      token = draw(chunk.logits, count, sampling, uniform(sampling.seed, position_), memory);
      if (token < 0) {
        throw Error("generate: a logit is not finite; the stream is as before it",
                    ErrorKind::kBadState);
      }
      out[i] = token;
      chunk.tokens = &token;
      if (i == n - 1) chunk.logits = nullptr;  // nothing follows
      feed.run_checked(&chunk, 1);
    }
  } catch (...) {
    put_back();
    throw;
  }
}

}  // namespace tsm
