#include "engine/pool/step.h"

#include <algorithm>
#include <new>
#include <string>

namespace tsm {
namespace {

// Calls f(); an exception fails the request.
template <class F>
void guarded(Request& request, const F& f) noexcept {
  try {
    f();
  } catch (const Error& error) {
    request.fail(error.kind, error.what());
  } catch (const std::bad_alloc&) {
    request.fail(ErrorKind::kOutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    request.fail(ErrorKind::kInternal, error.what());
  }
}

// Calls f(); an exception fails all requests.
template <class F>
bool guarded(const std::vector<Request*>& requests, const F& f) noexcept {
  const PoolEvent& first = *requests.front()->event;
  guarded(*requests.front(), f);
  if (first.error == ErrorKind()) return true;
  for (Request* request : requests) request->fail(first.error, first.message.c_str());
  return false;
}

void begin(Request& request) {
  request.started = true;
  request.was_clean = request.entry->clean;
  const int64_t at = request.entry->stream->position(), expected = request.expected_position;
  if (expected >= 0 && expected != at) {
    throw Error("expected_position = " + std::to_string(expected) + ", but the stream is at " +
                    std::to_string(at),
                ErrorKind::kBadState);
  }
  // Room for the state, so that on the CPU saving it cannot fail once the stream has advanced.
  PoolEvent& event = *request.event;
  if (event.saved) event.blob.resize(size_t(request.entry->stream->blob_bytes()));
  // If feeding fails, the call itself restores the stream; the copy is for several calls.
  if (!request.generates && request.piece >= request.steps) request.goes_back = false;
  if (request.goes_back) request.entry->stream->copy_to(*request.before);
}

}  // namespace

Step::Step(const Model& model, const PoolOptions& options) : model_(model) {
  const auto most = size_t(options.max_batch);
  drawing_.reserve(most);
  feeding_.reserve(most);
  draws_.reserve(most);
  chunks_.reserve(most);
}

void Step::run(const std::vector<Request*>& batch) noexcept {
  fed_ = generated_ = 0;
  for (Request* request : batch) {
    if (!request->started) guarded(*request, [&] { begin(*request); });
  }
  draw(batch);
  feeding_.clear();
  chunks_.clear();
  for (Request* request : batch) {
    if (request->failed() || request->is_over()) continue;
    feeding_.push_back(request);
    chunks_.push_back(next_chunk(*request));
  }
  feed();
  for (size_t i = 0; i < feeding_.size(); ++i) {
    if (!feeding_[i]->failed()) advance(*feeding_[i], chunks_[i]);
  }
  for (Request* request : batch) {
    if (request->failed() || request->is_over()) end(*request);
  }
}

void Step::draw(const std::vector<Request*>& batch) {
  drawing_.clear();
  draws_.clear();
  for (Request* request : batch) {
    if (request->failed() || !request->has_row) continue;
    drawing_.push_back(request);
    draws_.push_back(
        {request->row.data(), request->sampling, request->entry->stream->position(), -1});
  }
  if (drawing_.empty()) return;
  const auto all = [&] { model_.draw(draws_.data(), int64_t(draws_.size())); };
  if (!guarded(drawing_, all)) return;
  for (size_t i = 0; i < drawing_.size(); ++i) {
    Request& request = *drawing_[i];
    request.drawn = draws_[i].token;
    if (request.drawn < 0) request.fail(ErrorKind::kBadState, "generate: a logit is not finite");
  }
}

Chunk Step::next_chunk(Request& request) const {
  Chunk chunk;
  chunk.stream = request.entry->stream.get();
  PoolEvent& event = *request.event;
  if (request.generates) {
    const std::vector<int64_t>& stop = request.tokens;
    request.stopped =
        request.has_row && std::find(stop.begin(), stop.end(), request.drawn) != stop.end();
    const bool last = request.stopped || request.done + 1 == request.steps;
    chunk.tokens = &request.drawn;
    chunk.steps = request.has_row ? 1 : 0;
    chunk.logits = request.has_row && last ? nullptr : request.row.data();
    chunk.last_only = true;
    if (request.has_dt && request.has_row) chunk.dt = request.dt.data();
    return chunk;
  }
  chunk.steps = std::min(request.piece, request.steps - request.done);
  if (model_.takes_tokens())
    chunk.tokens = request.tokens.data() + request.done;
  else
    chunk.values = request.values.data() + request.done * model_.input_size();
  if (request.has_dt) chunk.dt = request.dt.data() + request.done;
  if (event.logits_of == LogitsOf::kEach) {
    chunk.logits = event.logits.data() + request.done * model_.output_size();
  } else if (event.logits_of == LogitsOf::kLast && request.done + chunk.steps == request.steps) {
    chunk.logits = event.logits.data();
    chunk.last_only = true;
  }
  if (event.scored) chunk.scores = event.log_probs.data() + request.done;
  return chunk;
}

void Step::feed() {
  if (chunks_.empty()) return;
  failures_.clear();
  const auto all = [&] {
    model_.feed(chunks_.data(), int64_t(chunks_.size()), {nullptr, &failures_, true});
  };
  if (!guarded(feeding_, all)) return;
  for (const Failure& failure : failures_)
    feeding_[size_t(failure.chunk)]->fail(failure.kind, failure.message.c_str());
}

void Step::advance(Request& request, const Chunk& chunk) {
  request.served = true;
  request.done += chunk.steps;
  if (chunk.steps > 0) request.entry->clean = false;
  (request.generates ? generated_ : fed_) += chunk.steps;
  if (!request.generates) return;
  request.has_drawn = chunk.steps > 0;
  request.has_row = true;
}

void Step::end(Request& request) noexcept {
  PoolEvent& event = *request.event;
  if (!request.started) {  // another request may be using the stream
    event.position = request.entry->position;
    event.saved = false;
    return;
  }
  StreamEntry& entry = *request.entry;
  const bool goes_back = request.failed() && !request.keeps_place();
  if (goes_back) {
    if (request.generates) event.tokens.clear();
    // Swap instead of copying: a copy that fails halfway would leave the stream in neither state.
    if (request.goes_back && request.done > 0) entry.stream.swap(request.before);
    entry.clean = request.was_clean;
  }
  event.position = entry.stream->position();
  if (!event.saved) return;
  event.saved = false;
  if (goes_back) return;
  guarded(request, [&] {
    event.blob.resize(size_t(entry.stream->blob_bytes()));
    entry.stream->save(event.blob.data());
    event.saved = entry.clean = true;
  });
}

}  // namespace tsm
