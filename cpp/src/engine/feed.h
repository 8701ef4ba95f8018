// One call that feeds chunks to streams: check everything, hold the streams, compute, and
// either all streams advance or none does.
#pragma once
#include <cstdint>

#include "engine/impl.h"
#include "engine/stream.h"

namespace tsm {

// Exclusive use of streams until the call ends.
class Hold {
 public:
  Hold() : holder_(this) {}  // two calls at once never have the same one
  // For those of chunks[0] to chunks[count - 1] that `take` is called for.
  Hold(const void* holder, const Chunk* chunks, int64_t count)
      : holder_(holder), chunks_(chunks), count_(count) {}
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // kBusy where another call has it, kInvalidArgument where this one does. `number`: the chunk's.
  void take(const Stream& stream, int64_t number) const;
  void add(const Stream& stream);  // one that is no chunk's

 private:
  void release(const Stream& stream) const;

  const void* holder_;
  const Chunk* chunks_ = nullptr;
  int64_t count_ = 0;
  const Stream* stream_ = nullptr;
};

// kInvalidArgument by default; `chunk` stands in the message and in Error::chunk, -1: none.
[[noreturn]] void refuse(int64_t chunk, const std::string& what,
                         ErrorKind kind = ErrorKind::kInvalidArgument);

// Whether f() went well. What it refuses is thrown on, or, where failures are collected, one more.
template <class F>
bool accepted(const Call& call, int64_t chunk, const F& f) {
  if (!call.failures) {
    f();
    return true;
  }
  try {
    f();
    return true;
  } catch (const Error& error) {
    call.failures->push_back({chunk, error.kind, error.what()});
    return false;
  }
}

class Feed {
 public:
  Feed(const Model& model, const Model::Impl& impl, Workspace& workspace)
      : model_(model), impl_(impl), workspace_(workspace) {}

  void run(const Chunk* chunks, int64_t count, const Call& call);
  // tsm::Error where a chunk cannot be fed.
  void check(const Chunk& chunk, int64_t number) const;
  // Feeds chunks[order[i]] for i < count, which are checked and held, and sorts `order`. false: no
  // stream has moved, workspace.broken says whose states would not be finite any more.
  bool advance(const Chunk* chunks, int64_t* order, int64_t count, const Call& call);
  // What such a state is refused with.
  [[noreturn]] void refuse_broken(const NotFinite& bad, int64_t number) const;

 private:
  void check_inputs(const Chunk& chunk, int64_t number) const;
  void check_dt(const Chunk& chunk, int64_t number) const;
  int64_t check_outputs(const Chunk* chunks, int64_t* order, int64_t count, const Call& call) const;
  void sort(int64_t* order, int64_t count) const;
  // keep: the streams have moved where no state is broken; else none has in any case.
  NotFinite compute(const int64_t* order, int64_t count, bool keep);
  void find_broken(const int64_t* order, int64_t count, const NotFinite& bad);
  void move_on(const int64_t* order, int64_t count);

  const Model& model_;
  const Model::Impl& impl_;
  Workspace& workspace_;
  const Chunk* chunks_ = nullptr;
  Call call_;
};

}  // namespace tsm
