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
  workspace_.slots.reserve(count);
  int64_t* const order = workspace_.order.data();
  Hold hold(&workspace_, chunks, count);
  int64_t left = count;
  if (!take_all(chunks, order, count, hold)) left = take_good(chunks, order, count, call, hold);
  // If all streams advance, each is released as it does, and not touched again.
  while (!advance_listed(chunks, order, left, call, left == count ? &hold : nullptr)) {
    for (const NotFinite& bad : workspace_.broken) {
      accepted(call, bad.chunk, [&] { refuse_broken(bad, call.alone ? -1 : bad.chunk); });
      left = std::remove(order, order + left, bad.chunk) - order;
    }
    list_slots(chunks, order, left);
  }
  if (left == count) hold.forget();
}

void Feed::list_slots(const Chunk* chunks, const int64_t* order, int64_t count) const {
  workspace_.slots.reserve(count);
  Slot** const slots = workspace_.slots.data();
  for (int64_t i = 0; i < count; ++i) slots[i] = &chunks[order[i]].stream->slot_;
}

bool Feed::advance_listed(const Chunk* chunks, const int64_t* order, int64_t count,
                          const Call& call, const Hold* hold) {
  if (count == 0) return true;
  chunks_ = chunks;
  order_ = order;
  call_ = call;
  const NotFinite bad = compute(0, count, true);
  if (bad.layer < 0) {
    move_on(count, hold);
    return true;
  }
  workspace_.broken.clear();
  find_broken(0, count, bad);
  return false;
}

// Finds by bisection which of the streams that failed together fail on their own. If none does (a
// GPU rounds differently for few streams), all of them count as broken.
void Feed::find_broken(int64_t first, int64_t count, const NotFinite& bad) {
  if (count == 1) {
    workspace_.broken.push_back({bad.layer, bad.state, order_[first]});
    return;
  }
  const int64_t half = count / 2;
  const size_t before = workspace_.broken.size();
  for (const auto& [begin, size] :
       {std::pair{first, half}, std::pair{first + half, count - half}}) {
    const NotFinite found = compute(begin, size, false);
    if (found.layer >= 0) find_broken(begin, size, found);
    if (!call_.failures && !workspace_.broken.empty()) return;  // one is enough to refuse the call
  }
  if (workspace_.broken.size() > before) return;
  for (int64_t i = first; i < first + count; ++i)
    workspace_.broken.push_back({bad.layer, bad.state, order_[i]});
}

NotFinite Feed::compute(int64_t first, int64_t count, bool keep) {
  return impl_.device->feed(chunks_, order_ + first, workspace_.slots.data() + first, count,
                            call_.cancel, keep);
}

void Feed::move_on(int64_t count, const Hold* hold) const {
  for (int64_t i = 0; i < count; ++i) {
    const Chunk& chunk = chunks_[order_[i]];
    Stream& stream = *chunk.stream;
    const int64_t steps = chunk.steps;
    stream.position_ += steps;
    if (const double sum = stream.time_ + double(steps);
        !chunk.dt &&
        (steps == 1 || (sum < kExactTime && stream.time_ == double(int64_t(stream.time_))))) {
      stream.time_ = sum;  // bit-identical to adding 1 step by step
    } else {
      for (int64_t t = 0; t < steps; ++t)
        stream.time_ += double(dt_of(chunk, t, impl_.shortest_dt));
    }
    if (hold) hold->release(stream);
  }
}

}  // namespace tsm
