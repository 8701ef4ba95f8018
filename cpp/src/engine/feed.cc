#include "engine/feed.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace tsm {
namespace {

constexpr double kExactTime = 9007199254740992.0;  // 2^53: integers below it are exact

}  // namespace

void Feed::run(const Chunk* chunks, int64_t count, const Call& call) {
  workspace_.order.reserve(count);
  int64_t* const order = workspace_.order.data();
  const auto number = [&](int64_t i) { return call.alone ? -1 : i; };
  int64_t left = check_chunks(chunks, order, count, call);
  left = check_outputs(chunks, order, left, call);
  const Hold hold(&workspace_, chunks, count);
  int64_t held = 0;
  for (int64_t k = 0; k < left; ++k) {
    const int64_t i = order[k];
    if (accepted(call, i, [&] { hold.take(*chunks[i].stream, number(i)); })) order[held++] = i;
  }
  left = held;
  while (!advance(chunks, order, left, call)) {
    for (const NotFinite& bad : workspace_.broken) {
      accepted(call, bad.chunk, [&] { refuse_broken(bad, number(bad.chunk)); });
      left = std::remove(order, order + left, bad.chunk) - order;
    }
  }
}

bool Feed::advance(const Chunk* chunks, int64_t* order, int64_t count, const Call& call) {
  if (count == 0) return true;
  chunks_ = chunks;
  call_ = call;
  sort(order, count);
  const NotFinite bad = compute(order, count, true);
  if (bad.layer < 0) {
    move_on(order, count);
    return true;
  }
  workspace_.broken.clear();
  find_broken(order, count, bad);
  return false;
}

// Sorts the longest chunks first, so that at every step the active streams are the first ones.
void Feed::sort(int64_t* order, int64_t count) const {
  const auto before = [this](int64_t a, int64_t b) {
    return chunks_[a].steps != chunks_[b].steps ? chunks_[a].steps > chunks_[b].steps : a < b;
  };
  // Usually all chunks have the same length, and checking that is cheaper than sorting.
  if (!std::is_sorted(order, order + count, before)) std::sort(order, order + count, before);
}

// Finds by bisection which of the streams that failed together fail on their own.
void Feed::find_broken(const int64_t* order, int64_t count, const NotFinite& bad) {
  if (count == 1) {
    workspace_.broken.push_back({bad.layer, bad.state, order[0]});
    return;
  }
  const int64_t half = count / 2;
  for (const auto& [first, size] :
       {std::pair{order, half}, std::pair{order + half, count - half}}) {
    const NotFinite found = compute(first, size, false);
    if (found.layer >= 0) find_broken(first, size, found);
    if (!call_.failures && !workspace_.broken.empty()) return;  // one is enough to refuse the call
  }
}

NotFinite Feed::compute(const int64_t* order, int64_t count, bool keep) {
  workspace_.slots.reserve(count);
  Slot** const slots = workspace_.slots.data();
  for (int64_t i = 0; i < count; ++i) slots[i] = &chunks_[order[i]].stream->slot_;
  return impl_.device->feed(chunks_, order, slots, count, call_.cancel, keep);
}

void Feed::move_on(const int64_t* order, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const Chunk& chunk = chunks_[order[i]];
    Stream& stream = *chunk.stream;
    const int64_t steps = chunk.steps;
    stream.position_ += steps;
    if (const double sum = stream.time_ + double(steps);
        !chunk.dt && sum < kExactTime && stream.time_ == double(int64_t(stream.time_))) {
      stream.time_ = sum;  // bit-identical to adding 1 step by step
    } else {
      for (int64_t t = 0; t < steps; ++t)
        stream.time_ += double(dt_of(chunk, t, impl_.shortest_dt));
    }
  }
}

}  // namespace tsm
