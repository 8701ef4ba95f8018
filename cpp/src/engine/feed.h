// One call that feeds chunks to streams: check everything, hold the streams, run in slices, and
// either all streams have moved on or none has.
#pragma once
#include <cstdint>

#include "engine/parts.h"
#include "engine/stream.h"

namespace tsm {

// Streams that this call has for itself until it ends.
class Hold {
 public:
  Hold() : holder_(this) {}  // two calls at once never have the same one
  explicit Hold(const void* holder) : holder_(holder) {}
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void add(const Chunk* chunks, int64_t count);  // kBusy, or kInvalidArgument for one twice
  void add(const Stream& stream);

 private:
  bool take(const Stream& stream) const;

  const void* holder_;
  const Chunk* chunks_ = nullptr;
  int64_t count_ = 0;
  const Stream* stream_ = nullptr;
};

class Feed {
 public:
  Feed(const Model& model, const Model::Parts& parts, Workspace& workspace)
      : model_(model), parts_(parts), workspace_(workspace) {}

  void run(const Chunk* chunks, int64_t count);
  // tsm::Error where a chunk cannot be fed; `number` stands in the message, -1: none.
  void check(const Chunk& chunk, int64_t number = -1) const;
  // The same without checks and without holding the streams: the caller has done both.
  void run_checked(const Chunk* chunks, int64_t count);

 private:
  void check_dt(const Chunk& chunk, int64_t number) const;
  void check_outputs(const Chunk* chunks, int64_t count) const;
  void reserve();
  void sort();
  NotFinite run_here();
  NotFinite run_on_device();
  // The streams order[first] .. order[first + count). false: bad_ says which state is not finite.
  bool group(int64_t first, int64_t count);
  bool slice(const int64_t* order, int64_t streams, int64_t done, int64_t steps);
  void read_inputs(const int64_t* order, Slice& slice, int64_t done);
  void outputs(const int64_t* order, const Slice& slice, int64_t done);

  const Model& model_;
  const Model::Parts& parts_;
  Workspace& workspace_;
  const Chunk* chunks_ = nullptr;
  int64_t count_ = 0;
  NotFinite bad_;
};

}  // namespace tsm
