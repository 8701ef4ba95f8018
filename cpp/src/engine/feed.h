// One call that feeds chunks to streams: checks everything, holds the streams and computes. Either
// all streams advance or none does.
#pragma once
#include <cstdint>

#include "engine/impl.h"
#include "engine/stream.h"

namespace tsm {

// Exclusive use of streams until the call ends.
class Hold {
 public:
  Hold() : holder_(this) {}  // unique among concurrent calls
  // When destroyed, releases those streams of chunks[0] to chunks[count - 1] that it has taken.
  Hold(const void* holder, const Chunk* chunks, int64_t count)
      : holder_(holder), chunks_(chunks), count_(count) {}
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // Throws kBusy if another call holds the stream, kInvalidArgument if this one already does.
  // `number` is the index of the chunk.
  void take(const Stream& stream, int64_t number) const {
    if (const void* const other = holder_before(stream)) refuse_held(other, number);
  }
  bool took(const Stream& stream) const { return !holder_before(stream); }
  void add(const Stream& stream);  // a stream without a chunk
  void release(const Stream& stream) const {
    if (stream.holder_.load(std::memory_order_relaxed) == holder_)
      stream.holder_.store(nullptr, std::memory_order_release);
  }
  void release_first(int64_t count) const {  // of the chunks
    for (int64_t i = 0; i < count; ++i)
      if (chunks_[i].stream) release(*chunks_[i].stream);
  }
  void forget() { count_ = 0; }  // all streams of the chunks are released

 private:
  [[noreturn]] void refuse_held(const void* holder, int64_t number) const;
  // Null: the stream was free, and is held now.
  const void* holder_before(const Stream& stream) const {
    const void* found = nullptr;
    stream.holder_.compare_exchange_strong(found, holder_, std::memory_order_acquire);
    return found;
  }

  const void* const holder_;
  const Chunk* chunks_ = nullptr;
  int64_t count_ = 0;
  const Stream* stream_ = nullptr;
};

// Throws tsm::Error. `chunk` goes into the message and into Error::chunk; -1 means none.
[[noreturn]] void refuse(int64_t chunk, const std::string& what,
                         ErrorKind kind = ErrorKind::kInvalidArgument);

// Whether f() succeeded. Its errors are rethrown, or added to call.failures if that is given.
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
  // Throws tsm::Error if a chunk cannot be fed.
  void check(const Chunk& chunk, int64_t number) const;
  // Feeds chunks[order[i]] for i < count, longest first, which must be checked and held. Returns
  // false if no stream has advanced; workspace.broken then lists those whose states would have
  // become non-finite.
  bool advance(const Chunk* chunks, const int64_t* order, int64_t count, const Call& call) {
    list_slots(chunks, order, count);
    return advance_listed(chunks, order, count, call, nullptr);
  }
  // Throws the error for a state that is not finite.
  [[noreturn]] void refuse_broken(const NotFinite& bad, int64_t number) const;

 private:
  enum class Problem {
    kNone,
    kNoStream,
    kOtherModel,
    kSteps,
    kScores,
    kInputKind,
    kValue,
    kToken,
    kNoDt,
    kDt,
    kOverlap
  };
  Problem problem_of(const Chunk& chunk) const;
  [[noreturn]] void refuse_chunk(Problem problem, const Chunk& chunk, int64_t number) const;
  // Checks and holds all chunks in one pass, and lists them in `order` and their slots, longest
  // first. Returns false, holding none, if one of them has to be refused.
  bool take_all(const Chunk* chunks, int64_t* order, int64_t count, const Hold& hold) const;
  // The same step by step: refuses what is wrong, and returns how many chunks are left.
  int64_t take_good(const Chunk* chunks, int64_t* order, int64_t count, const Call& call,
                    const Hold& hold) const;
  int64_t check_outputs(const Chunk* chunks, int64_t* order, int64_t count, const Call& call) const;
  Overlap overlap(const Chunk* chunks, const int64_t* order, int64_t count) const;
  void sort(const Chunk* chunks, int64_t* order, int64_t count) const;  // and lists the slots
  void list_slots(const Chunk* chunks, const int64_t* order, int64_t count) const;
  // As `advance`; `order` and workspace.slots agree. `hold`: releases the streams that advance.
  bool advance_listed(const Chunk* chunks, const int64_t* order, int64_t count, const Call& call,
                      const Hold* hold);
  // Chunks first to first + count - 1 of `order`. keep: the streams advance if all states are
  // finite. Without `keep` they never advance.
  NotFinite compute(int64_t first, int64_t count, bool keep);
  void find_broken(int64_t first, int64_t count, const NotFinite& bad);
  void move_on(int64_t count, const Hold* hold) const;

  const Model& model_;
  const Model::Impl& impl_;
  Workspace& workspace_;
  const Chunk* chunks_ = nullptr;
  const int64_t* order_ = nullptr;
  Call call_;
};

}  // namespace tsm
