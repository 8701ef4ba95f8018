#include "engine/stream.h"

#include <cstring>

#include "core/error.h"
#include "engine/feed.h"
#include "engine/impl.h"
#include "engine/state_blob.h"

namespace tsm {

Stream::Stream(std::shared_ptr<const Model> model)
    : model_(std::move(model)), slot_(device().create()) {}

Stream::~Stream() { device().release(slot_); }

Device& Stream::device() const { return *model_->impl_->device; }

float* Stream::states_on_host(Aligned<float>& copy) const {
  if (float* const states = device().on_host(slot_)) return states;
  copy = Aligned<float>(model_->state_floats());
  device().read(slot_, copy.data());
  return copy.data();
}

void Stream::get_state(int64_t layer, int64_t state, float* values) const {
  const Model::Impl& impl = *model_->impl_;
  if (layer < 0 || layer >= int64_t(impl.infos.size())) {
    throw Error("layer = " + std::to_string(layer) + "; accepted: 0 to " +
                std::to_string(impl.infos.size() - 1));
  }
  const auto& states = impl.infos[size_t(layer)].states;
  if (state < 0 || state >= int64_t(states.size())) {
    throw Error("state = " + std::to_string(state) + "; accepted: 0 to " +
                std::to_string(states.size() - 1));
  }
  Aligned<float> copy;
  const float* from = states_on_host(copy) + impl.states.at[size_t(layer)][size_t(state)];
  std::memcpy(values, from, size_t(states[size_t(state)].width) * 4);
}

std::vector<float> Stream::get_states() const {
  Aligned<float> copy;
  const float* const states = states_on_host(copy);
  std::vector<float> values;
  for (const StatePart& part : model_->impl_->parts)
    values.insert(values.end(), states + part.at, states + part.at + part.width);
  return values;
}

int64_t Stream::blob_bytes() const { return state_blob_bytes(floats_of(model_->impl_->parts)); }

std::vector<uint8_t> Stream::save() const {
  std::vector<uint8_t> blob(static_cast<size_t>(blob_bytes()));
  save(blob.data());
  return blob;
}

void Stream::save(uint8_t* blob) const {
  Hold hold;
  hold.add(*this);
  Aligned<float> copy;
  write_state({model_->fingerprint(), position_, time_}, states_on_host(copy), model_->impl_->parts,
              blob);
}

void Stream::load(const uint8_t* blob, int64_t bytes) {
  Hold hold;
  hold.add(*this);
  Aligned<float> copy;
  const StateHeader header =
      read_state(blob, bytes, model_->fingerprint(), model_->impl_->parts, states_on_host(copy));
  if (copy.data()) device().write(slot_, copy.data());
  position_ = header.position;
  time_ = header.time;
}

std::unique_ptr<Stream> Stream::fork() const {
  std::unique_ptr<Stream> twin(new Stream(model_));
  copy_to(*twin);
  return twin;
}

void Stream::copy_to(Stream& other) const {
  Hold own, theirs;
  own.add(*this);
  theirs.add(other);
  device().copy(slot_, other.slot_);
  other.position_ = position_;
  other.time_ = time_;
}

void Stream::reset() {
  Hold hold;
  hold.add(*this);
  device().clear(slot_);
  position_ = 0;
  time_ = 0;
}

void Stream::generate(int64_t n, const Sampling& sampling, int64_t* out, float dt, Cancel* cancel) {
  const Generation item{this, n, sampling, dt, out};
  model_->generate(&item, 1, {cancel, nullptr, true});
}

}  // namespace tsm
