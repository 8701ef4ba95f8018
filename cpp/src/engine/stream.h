// A stream: the states of one endless sequence, and its position.
//
// It may be used by one thread at a time; a second call while one is running is refused (kBusy).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned.h"
#include "engine/device/device.h"
#include "engine/model.h"

namespace tsm {

class alignas(64) Stream {  // one cache line: a call with many streams touches each several times
 public:
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Model& model() const { return *model_; }
  int64_t position() const { return position_; }  // steps fed
  double time() const { return time_; }           // sum of their dt

  // State `state` of layer `layer`, as many floats as its width. The caller holds the stream
  // (engine/feed.h).
  void get_state(int64_t layer, int64_t state, float* values) const;
  // All states at once without padding: layers in order, states in order.
  std::vector<float> get_states() const;

  std::vector<uint8_t> save() const;  // engine/state_blob.h
  int64_t blob_bytes() const;         // size of a saved state: the same for every stream of a model
  void save(uint8_t* blob) const;     // [blob_bytes()]
  void load(const uint8_t* blob, int64_t bytes);  // kBadState: the stream is unchanged
  std::unique_ptr<Stream> fork() const;
  void copy_to(Stream& other) const;  // `other` becomes a copy of this stream
  void reset();
  // Like Model::generate, for this stream: out [n].
  void generate(int64_t n, const Sampling& sampling, int64_t* out, float dt = 1,
                Cancel* cancel = nullptr);

 private:
  friend class Model;
  friend class Feed;
  friend class Generator;
  friend class Hold;
  explicit Stream(std::shared_ptr<const Model> model);
  Device& device() const;
  // The states on the host: the slot's own, or a copy of them in `copy`.
  float* states_on_host(Aligned<float>& copy) const;

  std::shared_ptr<const Model> model_;
  Slot slot_;  // the states, layer by layer, each at a 64-byte boundary
  int64_t position_ = 0;
  double time_ = 0;
  mutable std::atomic<const void*> holder_{nullptr};  // the call that holds the stream now
};
static_assert(sizeof(Stream) == 64);

}  // namespace tsm
