// Calls on many streams of a model, and their cancellation.
#include <cstddef>
#include <cstdio>
#include <limits>

#include "c_api/handles.h"
#include "c_api/sized.h"

namespace tsm::c_api {

TokenType token_type_of(int32_t type) {
  switch (type) {
    case TSM_INT64:
      return TokenType::kInt64;
    case TSM_INT32:
      return TokenType::kInt32;
    case TSM_UINT16:
      return TokenType::kUint16;
  }
  throw Error("token_type = " + std::to_string(type) +
              "; accepted: TSM_INT64, TSM_INT32, TSM_UINT16");
}

namespace {

// The engine does not check the size of its outputs.
void check_room(const Model& model, const tsm_chunk& chunk) {
  const uint64_t rows = chunk.last_only ? 1 : uint64_t(std::max<int64_t>(chunk.T, 0));
  const uint64_t V = uint64_t(model.output_size());
  if (rows <= uint64_t(chunk.room) / V) return;
  throw Error("room = " + std::to_string(chunk.room) + " floats for logits; accepted: at least " +
              std::to_string(rows) + " * " + std::to_string(V));
}

// The size of a struct in the first version of this ABI: no program can have a smaller one.
constexpr size_t first_size(const tsm_chunk*) {
  return offsetof(tsm_chunk, token_type) + sizeof(int32_t);
}
constexpr size_t first_size(const tsm_generation*) {
  return offsetof(tsm_generation, sampling) + sizeof(void*);
}

// The caller's array of structs; the first one's `size` applies to all.
template <class T>
class Structs {
 public:
  Structs(const T* first, size_t count, const char* name)
      : bytes_(reinterpret_cast<const char*>(first)), count_(count), name_(name) {
    if (count == 0) return;
    each_ = given(first, name)->size;
    if (each_ < first_size(first) || each_ % alignof(T) != 0)
      throw Error(std::string(name) + "[0].size = " + std::to_string(each_) +
                  "; accepted: sizeof(*" + name + "), " + std::to_string(sizeof(T)));
    if (count > size_t(std::numeric_limits<int64_t>::max()) / each_)
      throw Error("count = " + std::to_string(count) + "; accepted: the number of " + name);
  }
  T read(size_t i) const {
    const T& theirs = *reinterpret_cast<const T*>(bytes_ + i * each_);
    if (theirs.size != each_)
      throw Error("size = " + std::to_string(theirs.size) + "; accepted: that of " + name_ +
                  "[0], " + std::to_string(each_));
    return read_known(&theirs, T(), name_);
  }
  size_t count() const { return count_; }

 private:
  const char* bytes_;
  size_t count_, each_ = 0;
  const char* name_;
};

// Adapts the caller's flag to the engine's Cancel.
class Flag : public Cancel {
 public:
  explicit Flag(const tsm_cancel* cancel) : cancel_(cancel) {}
  bool requested() override { return cancel_ && cancel_->flag.is_set(); }

 private:
  const tsm_cancel* cancel_;
};

void tell(tsm_failure& to, const Failure& failure) {
  if (to.status != TSM_OK) return;  // keep the first error
  to.status = status_of(failure.kind);
  std::snprintf(to.message, sizeof to.message, "%s", failure.message.c_str());
}

// Translates each of the caller's structs into one of `items`, and runs them together.
template <class Theirs, class Ours, class Translate, class Run>
void run_many(const tsm_model* model, const Theirs* first, size_t count, const char* name,
              const tsm_call* call, std::vector<Ours> Batch::* items, const Translate& translate,
              const Run& run) {
  model_of(model);
  const auto how = read_known(call, tsm_call TSM_CALL_INIT, "call");
  const Structs<Theirs> theirs(first, count, name);
  Flag flag(how.cancel);
  end_if_cancelled(&flag);
  const Lease<Batch> lease(model->batches);
  Batch& batch = *lease;
  std::vector<Ours>& ours = batch.*items;
  ours.clear();
  batch.failures.clear();
  for (size_t i = 0; i < count; ++i) {
    try {
      ours.push_back(translate(theirs.read(i)));
    } catch (const Error& error) {
      const Error refused = numbered(name, int64_t(i), error);
      if (!how.failures) throw refused;
      ours.emplace_back();  // keeps the indices right; the engine refuses this one again
      batch.failures.push_back({int64_t(i), refused.kind, refused.what()});
    }
  }
  run(ours, Call{&flag, how.failures ? &batch.failures : nullptr, false});
  if (!how.failures) return;
  for (size_t i = 0; i < count; ++i) how.failures[i] = {TSM_OK, ""};
  for (const Failure& failure : batch.failures) tell(how.failures[failure.chunk], failure);
}

}  // namespace

Chunk engine_chunk(const Model& model, const tsm_chunk& c) {
  if (c.logits) check_room(model, c);
  Chunk chunk;
  chunk.stream = &stream_of(c.stream);
  chunk.tokens = Tokens(c.tokens, token_type_of(c.token_type));
  chunk.values = c.values;
  chunk.steps = c.T;
  chunk.dt = c.dt;
  chunk.logits = c.logits;
  chunk.last_only = c.last_only != 0;
  chunk.scores = c.log_probs;
  return chunk;
}

Generation engine_generation(Stream& stream, int64_t n, const tsm_sampling* sampling,
                             int64_t* tokens) {
  const auto chosen = read_known(sampling, tsm_sampling TSM_SAMPLING_INIT, "sampling");
  return {&stream,
          n,
          {chosen.temperature, chosen.top_k, chosen.top_p, chosen.seed},
          float(chosen.dt),
          tokens};
}

}  // namespace tsm::c_api

using namespace tsm;
using namespace tsm::c_api;

extern "C" {

tsm_status tsm_cancel_create(tsm_cancel** cancel) {
  return guard([&] {
    given(cancel, "cancel");  // the right side of an assignment is evaluated first
    *cancel = new tsm_cancel;
  });
}
void tsm_cancel_free(tsm_cancel* cancel) { delete cancel; }
void tsm_cancel_set(tsm_cancel* cancel) {
  if (cancel) cancel->flag.set(true);
}
void tsm_cancel_clear(tsm_cancel* cancel) {
  if (cancel) cancel->flag.set(false);
}
int tsm_cancel_is_set(const tsm_cancel* cancel) { return cancel && cancel->flag.is_set(); }

tsm_status tsm_model_feed_many(const tsm_model* model, const tsm_chunk* chunks, size_t count,
                               const tsm_call* call) {
  return guard([&] {
    const auto translate = [&](const tsm_chunk& c) { return engine_chunk(*model->model, c); };
    run_many(model, chunks, count, "chunks", call, &Batch::chunks, translate,
             [&](const auto& ours, const Call& how) {
               model->model->feed(ours.data(), int64_t(ours.size()), how);
             });
  });
}

tsm_status tsm_model_generate_many(const tsm_model* model, const tsm_generation* generations,
                                   size_t count, const tsm_call* call) {
  return guard([&] {
    const auto translate = [](const tsm_generation& g) {
      return engine_generation(stream_of(g.stream), g.n, g.sampling, g.tokens);
    };
    run_many(model, generations, count, "generations", call, &Batch::generations, translate,
             [&](const auto& ours, const Call& how) {
               model->model->generate(ours.data(), int64_t(ours.size()), how);
             });
  });
}

tsm_status tsm_stream_feed_chunk(const tsm_chunk* chunk, const tsm_cancel* cancel) {
  return guard([&] {
    const tsm_chunk read = Structs<tsm_chunk>(given(chunk, "chunk"), 1, "chunk").read(0);
    const Model& model = stream_of(read.stream).model();
    const Chunk ours = engine_chunk(model, read);
    Flag flag(cancel);
    model.feed(&ours, 1, {&flag, nullptr, true});
  });
}

tsm_status tsm_stream_generate_tokens(const tsm_generation* generation, const tsm_cancel* cancel) {
  return guard([&] {
    const auto read =
        Structs<tsm_generation>(given(generation, "generation"), 1, "generation").read(0);
    Stream& stream = stream_of(read.stream);
    const Generation ours = engine_generation(stream, read.n, read.sampling, read.tokens);
    Flag flag(cancel);
    stream.model().generate(&ours, 1, {&flag, nullptr, true});
  });
}

}  // extern "C"
