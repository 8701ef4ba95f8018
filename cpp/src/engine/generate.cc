#include "engine/generate.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "engine/sampling.h"

namespace tsm {
namespace {

constexpr int64_t kFloats = 1 << 24;    // limit for the logits of one group of streams,
constexpr int64_t kFewestStreams = 64;  // but a group has at least this many streams

}  // namespace

// Whether f() succeeded. Its error names the generation.
template <class F>
bool Generator::accepted(int64_t item, const F& f) const {
  return tsm::accepted(call_, item, [&] {
    try {
      f();
    } catch (const Error& error) {
      throw call_.alone ? error : numbered("generations", item, error);
    }
  });
}

void Generator::check(const Generation& item) const {
  if (item.n < 0) throw Error("n = " + std::to_string(item.n) + "; accepted: 0 or more");
  if (!item.tokens && item.n > 0) throw Error("tokens is null; accepted: room for n tokens");
  tsm::check(item.sampling);
  const int64_t token = 0;
  Chunk chunk;  // checked like any other chunk
  chunk.stream = item.stream;
  chunk.tokens = &token;
  chunk.steps = 1;
  if (item.dt != 1) chunk.dt = &item.dt;
  feed_.check(chunk, -1);
}

// Chunk k belongs to item order[k]. The longest generations come first, so that at every step the
// active ones are at the front.
void Generator::run(const Generation* items, int64_t count, const Call& call) {
  if (model_.family() != Family::kLanguageModel) throw Error("generate needs a language model");
  items_ = items;
  call_ = call;
  own_workspace_.order.reserve(count);
  int64_t* const order = own_workspace_.order.data();
  int64_t left = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (accepted(i, [&] { check(items[i]); })) order[left++] = i;
  }
  std::sort(order, order + left, [items](int64_t a, int64_t b) {
    return items[a].n != items[b].n ? items[a].n > items[b].n : a < b;
  });
  own_workspace_.chunks.assign(size_t(left), Chunk());
  own_workspace_.started.assign(size_t(left), Started());
  for (int64_t k = 0; k < left; ++k) {
    Chunk& chunk = own_workspace_.chunks[size_t(k)];
    chunk.stream = items[order[k]].stream;
    if (items[order[k]].dt != 1) chunk.dt = &items[order[k]].dt;
    chunk.last_only = true;
  }
  own_workspace_.backup.reserve(left * impl_.states.floats);
  own_workspace_.slots.reserve(left);
  const Hold hold(&own_workspace_, own_workspace_.chunks.data(), left);
  int64_t held = 0;
  for (int64_t k = 0; k < left; ++k) {
    Stream& stream = *own_workspace_.chunks[size_t(k)].stream;
    if (!accepted(order[k], [&] { hold.take(stream, -1); })) continue;
    own_workspace_.slots.data()[held] = &stream.slot_;
    own_workspace_.started[size_t(k)] = {held++, stream.position_, stream.time_};
  }
  impl_.device->read(own_workspace_.slots.data(), held, own_workspace_.backup.data());
  const int64_t V = model_.output_size();
  const int64_t together =
      std::min(impl_.device->most_streams(), std::max(kFewestStreams, kFloats / V));
  try {
    for (int64_t first = 0; first < left; first += together) {
      group(first, std::min(together, left - first));
    }
  } catch (...) {
    for (int64_t k = 0; k < left; ++k) put_back(k);
    throw;
  }
}

void Generator::put_back(int64_t k) {
  const Started& started = own_workspace_.started[size_t(k)];
  if (started.backup < 0) return;
  Stream& stream = *own_workspace_.chunks[size_t(k)].stream;
  const float* const states = own_workspace_.backup.data() + started.backup * impl_.states.floats;
  impl_.device->write(stream.slot_, states);
  stream.position_ = started.position;
  stream.time_ = started.time;
}

int64_t Generator::drop(int64_t* active, int64_t count, int64_t k) const {
  return std::remove(active, active + count, k) - active;
}

void Generator::group(int64_t first, int64_t count) {
  const int64_t V = model_.output_size();
  group_ = first;
  const auto n = [&](int64_t k) { return items_[own_workspace_.order.data()[k]].n; };
  own_workspace_.logits.reserve(count * V);
  own_workspace_.drawn.reserve(count);
  own_workspace_.active.reserve(count);
  int64_t* const active = own_workspace_.active.data();
  int64_t left = 0;
  for (int64_t k = first; k < first + count; ++k) {
    Chunk& chunk = own_workspace_.chunks[size_t(k)];
    chunk.logits = own_workspace_.logits.data() + (k - first) * V;
    chunk.tokens = own_workspace_.drawn.data() + (k - first);
    if (n(k) > 0 && own_workspace_.started[size_t(k)].backup >= 0) active[left++] = k;
  }
  left = step(active, left);  // feeds no token, just computes the logits of the current states
  for (int64_t t = 0; left > 0; ++t) {
    draw(active, left);
    for (int64_t i = left - 1; i >= 0; --i) {
      const int64_t k = active[i], token = own_workspace_.drawn.data()[k - first];
      if (token < 0) {
        accepted(own_workspace_.order.data()[k], [] {
          throw Error("generate: a logit is not finite; the stream is unchanged",
                      ErrorKind::kBadState);
        });
        put_back(k);
        left = drop(active, left, k);
        continue;
      }
      items_[own_workspace_.order.data()[k]].tokens[t] = token;
      Chunk& chunk = own_workspace_.chunks[size_t(k)];
      chunk.steps = 1;
      if (t == n(k) - 1) chunk.logits = nullptr;  // nothing follows
    }
    left = step(active, left);
    while (left > 0 && n(active[left - 1]) == t + 1) --left;
  }
}

// Feeds the active streams; returns how many are still active.
int64_t Generator::step(int64_t* active, int64_t count) {
  while (!feed_.advance(own_workspace_.chunks.data(), active, count, call_)) {
    for (const NotFinite& bad : fed_workspace_.broken) {
      accepted(own_workspace_.order.data()[bad.chunk], [&] { feed_.refuse_broken(bad, -1); });
      put_back(bad.chunk);
      count = drop(active, count, bad.chunk);
    }
  }
  return count;
}

// Draws the next token of each stream, or -1 if a logit is not finite.
void Generator::draw(const int64_t* active, int64_t count) {
  const int64_t V = model_.output_size();
  draw_each(impl_, own_workspace_, count, [&](int64_t i, double* weights, int64_t* heap) {
    const Chunk& chunk = own_workspace_.chunks[size_t(active[i])];
    const Sampling& sampling = items_[own_workspace_.order.data()[active[i]]].sampling;
    const double random = uniform(sampling.seed, chunk.stream->position_);
    own_workspace_.drawn.data()[active[i] - group_] =
        tsm::draw(chunk.logits, V, sampling, random, weights, heap);
  });
}

}  // namespace tsm
