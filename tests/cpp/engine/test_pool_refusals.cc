// Requests to a pool that are refused, cancelled, late or bad: nothing else changes. Also tests the
// pool's queue and its table of streams when they are full, busy or closed.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pools.h"

using namespace pools;

namespace {

// ---- requests that end early

// A request that is cancelled after any number of steps leaves its stream as it was before the
// request or, with progress, as it was after the last token drawn.
TEST_CASE("cancel") {
  const Made made = make({});
  const Model& model = *made.model;
  const Input input(model, 40, 3);
  for (int kind = 0; kind < 3; ++kind) {  // a feed, a generation, one with progress
    for (int steps = 0; steps < 7; ++steps) {
      for (const bool deadline : {false, true}) {
        int64_t clock = 0;
        PoolOptions options = by_hand();
        options.now = [&clock] { return clock; };
        StreamPool pool(made.model, options);
        pool.feed("s", feed_of(input, 0, 3, LogitsOf::kNone, false), {});
        run_out(pool);
        only_event(pool);
        const std::vector<uint8_t> before = pool.save("s");
        const auto lone = model.create_stream();
        lone->load(before.data(), int64_t(before.size()));
        Terms terms;
        terms.save = true;
        terms.has_timeout = deadline;
        terms.timeout = 5;
        GenerateRequest asked = generation_of(20, 9);
        asked.progress = kind == 2;
        const uint64_t ticket =
            kind == 0 ? pool.feed("s", feed_of(input, 0, 40, LogitsOf::kEach, true), terms)
                      : pool.generate("s", asked, terms);
        const uint64_t next = pool.feed("s", feed_of(input, 0, 1, LogitsOf::kLast, false), {});
        for (int i = 0; i < steps; ++i) pool.step();
        const bool over = kind == 0 && steps >= 5;
        clock = int64_t(5e9);
        if (!deadline) CHECK(pool.cancel(ticket) == !over);
        run_out(pool);
        Events events = all_events(pool);
        const auto of = [&](uint64_t wanted) -> PoolEvent& {
          return **std::find_if(events.begin(), events.end(), [&](const auto& event) {
            return event->done && event->ticket == wanted;
          });
        };
        const PoolEvent& ended = of(ticket);
        CHECK(of(next).error == ErrorKind());
        if (over) {
          CHECK((ended.error == ErrorKind() && ended.position == 43));
          continue;
        }
        CHECK(ended.error == (deadline ? ErrorKind::kDeadline : ErrorKind::kCancelled));
        const int64_t drawn = kind == 2 ? std::max(steps - 1, 0) : 0;
        std::vector<int64_t> tokens(static_cast<size_t>(drawn));
        lone->generate(drawn, asked.sampling, tokens.data());
        CHECK((ended.tokens == tokens && ended.position == 3 + drawn));
        CHECK(ended.saved == (kind == 2 && steps > 0));
        if (ended.saved) CHECK(ended.blob == lone->save());
        const Chunk chunk = input.chunk(*lone, 0, 1, nullptr);
        model.feed(&chunk, 1);
        CHECK(pool.save("s") == lone->save());  // the next request began at the right place
        CHECK((!pool.cancel(ticket) && !pool.cancel(next) && !pool.cancel(0) && !pool.cancel(77)));
        const tsm::PoolStats stats = pool.stats();
        CHECK((stats.cancelled == !deadline && stats.deadline_misses == deadline));
      }
    }
  }
}

// The last event gives the position before the running request, not the position that request has
// reached.
TEST_CASE("cancelling one that never began") {
  const Made made = make({});
  StreamPool pool(made.model, by_hand());
  const Input input(*made.model, 100, 3);
  pool.feed("s", feed_of(input, 0, 100, LogitsOf::kNone, false), {});
  const uint64_t second = pool.generate("s", generation_of(5), {});
  const uint64_t third = pool.feed("s", feed_of(input, 0, 1, LogitsOf::kNone, false), {});
  for (int i = 0; i < 3; ++i) pool.step();
  CHECK(pool.cancel(second));
  CHECK(only_event(pool)->position == 0);
  run_out(pool);
  for (const auto& event : all_events(pool))
    CHECK(event->position == (event->ticket == third ? 101 : 100));
}

TEST_CASE("a bad request harms no other") {
  sample::Spec spec;
  spec.cell = sample::bomb();  // explodes after some steps
  const Made made = make(spec);
  StreamPool pool(made.model, by_hand());
  const Input input(*made.model, 100, 3);
  const uint64_t long_one = pool.feed("a", feed_of(input, 0, 100, LogitsOf::kNone, true), {});
  const uint64_t draws = pool.generate("b", generation_of(100), {});
  const uint64_t good = pool.feed("c", feed_of(input, 0, 3, LogitsOf::kLast, false), {});
  run_out(pool);
  for (const auto& event : all_events(pool)) {
    if (event->ticket == good) {
      CHECK((event->error == ErrorKind() && event->position == 3));
      continue;
    }
    CHECK((event->ticket == long_one || event->ticket == draws));
    CHECK((event->error == ErrorKind::kBadState && event->position == 0 && event->tokens.empty()));
    CHECK(event->message.find("no longer finite") != std::string::npos);
  }
  CHECK((pool.stats().failed == 2 && pool.stats().finished == 1));
  CHECK(pool.save("a") == made.model->create_stream()->save());
}

// The position is checked when the request begins, not when it is submitted.
TEST_CASE("a chunk out of order") {
  const Made made = make({});
  StreamPool pool(made.model, by_hand());
  const Input input(*made.model, 40, 3);
  const auto feed = [&](int64_t first, int64_t last) {
    Terms terms;
    terms.has_expected_position = true;
    terms.expected_position = first;
    return pool.feed("s", feed_of(input, first, last, LogitsOf::kNone, false), terms);
  };
  feed(0, 20);
  const uint64_t early = feed(30, 40);
  feed(20, 30);
  const uint64_t again = feed(20, 30);
  feed(30, 40);
  run_out(pool);
  for (const auto& event : all_events(pool)) {
    const bool refused = event->ticket == early || event->ticket == again;
    CHECK(event->error == (refused ? ErrorKind::kBadState : ErrorKind()));
    if (event->ticket == again)
      CHECK(event->message == "expected_position = 20, but the stream is at 30");
  }
  const auto lone = made.model->create_stream();
  const Chunk chunk = input.chunk(*lone, 0, 40, nullptr);
  made.model->feed(&chunk, 1);
  CHECK(pool.save("s") == lone->save());
}

// Events that the caller could not deliver are returned again, before all others and in order.
TEST_CASE("events that are put back") {
  const Made made = make({});
  StreamPool pool(made.model, by_hand());
  for (int i = 0; i < 4; ++i) pool.generate("k" + std::to_string(i), generation_of(2), {});
  run_out(pool);
  Events first = pool.take(3, 0);
  std::vector<uint64_t> tickets;
  for (const auto& event : first) tickets.push_back(event->ticket);
  Events rest = all_events(pool);
  tickets.push_back(rest.front()->ticket);
  pool.put_back(std::move(rest));
  pool.put_back(std::move(first));
  CHECK((pool.stats().events == 4 && readable(pool.fd())));
  pool.close(true);
  std::vector<uint64_t> again;
  for (const auto& event : pool.take(9, -1)) again.push_back(event->ticket);
  CHECK((again == tickets && pool.take(1, -1).empty() && !readable(pool.fd())));
}

TEST_CASE("what is refused at once") {
  const Made made = make({});
  StreamPool pool(made.model, by_hand());
  const Input input(*made.model, 10, 3);
  const FeedRequest good = feed_of(input, 0, 10, LogitsOf::kNone, false);
  const auto refused = [&](const auto& change) {
    FeedRequest feed = good;
    GenerateRequest generation = generation_of(3);
    Terms terms;
    change(feed, generation, terms);
    ErrorKind kind = kind_of([&] { pool.feed("k", feed, terms); });
    if (kind == ErrorKind()) kind = kind_of([&] { pool.generate("k", generation, terms); });
    return kind;
  };
  const int64_t wrong[] = {99};
  const float late[] = {-1};
  constexpr ErrorKind kInvalid = ErrorKind::kInvalidArgument;
  CHECK(refused([&](auto& f, auto&, auto&) { f.tokens = wrong, f.steps = 1; }) == kInvalid);
  CHECK(refused([&](auto& f, auto&, auto&) { f.dt = late, f.steps = 1; }) == kInvalid);
  CHECK(refused([&](auto& f, auto&, auto&) { f.steps = -1; }) == kInvalid);
  CHECK(refused([&](auto& f, auto&, auto&) { f.tokens = nullptr; }) == kInvalid);
  const std::string key(257, 'k');
  for (const std::string_view name : {std::string_view(), std::string_view(key)}) {
    CHECK(kind_of([&] { pool.feed(name, good, {}); }) == kInvalid);
    CHECK(kind_of([&] { pool.has(name); }) == kInvalid);
  }
  CHECK((!pool.has("k") && pool.stats().queue == 0 && pool.stats().streams == 0));
  CHECK(refused([&](auto& f, auto& g, auto&) { f.steps = 0, g.n = -1; }) == kInvalid);
  CHECK(refused([&](auto&, auto& g, auto&) { g.sampling.top_p = 0; }) == kInvalid);
  CHECK(refused([&](auto&, auto& g, auto&) { g.stop = wrong, g.stop_count = 1; }) == kInvalid);
  CHECK(refused([&](auto&, auto& g, auto&) { g.stop = wrong, g.stop_count = 1 << 30; }) ==
        kInvalid);
  CHECK(refused([&](auto&, auto& g, auto&) { g.stop = wrong, g.stop_count = -1; }) == kInvalid);
  CHECK(kind_of([&] { pool.wait_room(std::nan("")); }) == kInvalid);
  CHECK(kind_of([&] { pool.take(1, std::nan("")); }) == kInvalid);
  CHECK(refused([&](auto&, auto&, auto& t) { t.priority = 4; }) == kInvalid);
  CHECK(refused([&](auto&, auto&, auto& t) {
          t.has_expected_position = true, t.expected_position = -1;
        }) == kInvalid);
  CHECK(refused([&](auto&, auto&, auto& t) { t.user = key; }) == kInvalid);
  CHECK(refused([&](auto&, auto&, auto& t) { t.has_timeout = true; }) == ErrorKind::kDeadline);
  for (int64_t PoolOptions::* field :
       {&PoolOptions::max_queue, &PoolOptions::max_streams, &PoolOptions::max_batch,
        &PoolOptions::prefill_steps, &PoolOptions::prefill_budget}) {
    PoolOptions options;
    options.*field = -1;
    CHECK(kind_of([&] { StreamPool(made.model, options); }) == kInvalid);
  }
}

// ---- the queue, and the table of streams

TEST_CASE("the queue") {
  const Made made = make({});
  PoolOptions options = by_hand();
  options.max_queue = 3;
  StreamPool pool(made.model, options);
  CHECK(!readable(pool.fd()));
  for (int i = 0; i < 3; ++i) pool.generate("k", generation_of(2), {});
  const auto one_more = [&] { pool.generate("k", generation_of(2), {}); };
  CHECK((kind_of(one_more) == ErrorKind::kFull && !pool.wait_room(0)));
  run_out(pool);
  CHECK(readable(pool.fd()));
  CHECK(kind_of(one_more) == ErrorKind::kFull);  // until the finished requests are taken
  CHECK((pool.take(1, 0).size() == 1 && readable(pool.fd())));
  CHECK((pool.wait_room(0) && kind_of(one_more) == ErrorKind()));
  CHECK((pool.take(9, 0).size() == 2 && !readable(pool.fd())));
  CHECK((pool.stats().refused == 2 && pool.stats().queue == 1));
  pool.close(true);
  CHECK((pool.closed() && kind_of(one_more) == ErrorKind::kClosed && !pool.wait_room(0)));
  CHECK(only_event(pool)->error == ErrorKind());
  CHECK(pool.take(1, -1).empty());  // there will be no more
  CHECK(pool.save("k").size() > 0);
}

TEST_CASE("close ends what is there") {
  const Made made = make({});
  for (const bool own_thread : {false, true}) {
    PoolOptions options;
    options.own_thread = own_thread;
    StreamPool pool(made.model, options);
    for (int i = 0; i < 20; ++i)
      pool.generate("k" + std::to_string(i % 7), generation_of(1 << 20), {});
    pool.close(false);
    pool.close(true);
    const Events events = all_events(pool);
    CHECK(events.size() == 20);
    for (const auto& event : events)
      CHECK((event->error == ErrorKind::kClosed && event->position == 0));
  }
}

TEST_CASE("streams by key") {
  const Made made = make({});
  StreamPool pool(made.model, by_hand());
  const Input input(*made.model, 10, 3);
  const auto feed = [&](const char* key) {
    return pool.feed(key, feed_of(input, 0, 10, LogitsOf::kNone, false), {});
  };
  constexpr ErrorKind kInvalid = ErrorKind::kInvalidArgument, kBusy = ErrorKind::kBusy;
  CHECK((!pool.has("a") && !pool.drop("a")));
  CHECK(kind_of([&] { pool.save("a"); }) == kInvalid);
  CHECK(kind_of([&] { pool.fork("a", "b"); }) == kInvalid);
  feed("a");
  const std::vector<uint8_t> blob = made.model->create_stream()->save();
  for (int i = 0; i < 2; ++i) {  // busy before its first step, and after it
    CHECK(pool.has("a"));
    CHECK(kind_of([&] { pool.save("a"); }) == kBusy);
    CHECK(kind_of([&] { pool.position("a"); }) == kBusy);
    CHECK(kind_of([&] { pool.fork("a", "b"); }) == kBusy);
    CHECK(kind_of([&] { pool.reset("a"); }) == kBusy);
    CHECK(kind_of([&] { pool.drop("a"); }) == kBusy);
    CHECK(kind_of([&] { pool.put("a", blob.data(), int64_t(blob.size())); }) == kBusy);
    pool.step();
    if (i == 0) CHECK(pool.stats().finished == 0);
  }
  CHECK(pool.position("a") == 10);
  pool.fork("a", "b");
  CHECK(pool.save("b") == pool.save("a"));
  CHECK(kind_of([&] { pool.fork("a", "b"); }) == kInvalid);
  pool.reset("a");
  CHECK((pool.position("a") == 0 && pool.save("a") == blob && pool.position("b") == 10));
  const std::vector<uint8_t> state = pool.save("b");
  pool.put("a", state.data(), int64_t(state.size()));
  pool.put("c", state.data(), int64_t(state.size()));
  CHECK((pool.save("a") == state && pool.save("c") == state));
  std::vector<uint8_t> damaged = state;
  damaged[50] ^= 1;
  for (const char* key : {"a", "new"}) {
    CHECK(kind_of([&] { pool.put(key, damaged.data(), int64_t(damaged.size())); }) ==
          ErrorKind::kBadState);
  }
  CHECK((pool.save("a") == state && !pool.has("new")));
  CHECK((pool.drop("c") && !pool.has("c")));
}

TEST_CASE("room for streams") {
  const Made made = make({});
  const Input input(*made.model, 20, 3);
  const FeedRequest one = feed_of(input, 0, 1, LogitsOf::kNone, false);
  PoolOptions options = by_hand();
  options.max_streams = 3;
  {  // nowhere to spill: unsaved streams stay
    StreamPool pool(made.model, options);
    for (const char* key : {"a", "b", "c"}) pool.feed(key, one, {});
    CHECK(kind_of([&] { pool.feed("d", one, {}); }) == ErrorKind::kFull);
    run_out(pool);
    CHECK(kind_of([&] { pool.feed("d", one, {}); }) == ErrorKind::kFull);
    CHECK(kind_of([&] { pool.fork("a", "d"); }) == ErrorKind::kFull);
    CHECK(pool.stats().queue == 3);
    pool.save("b");
    pool.feed("d", one, {});
    CHECK((!pool.has("b") && pool.has("d") && pool.stats().dropped == 1));
    run_out(pool);
    Terms saved;
    saved.save = true;
    pool.feed("a", one, saved);
    run_out(pool);
    pool.feed("e", one, {});
    CHECK((!pool.has("a") && pool.has("c")));
  }
  std::map<std::string, std::vector<uint8_t>> spilled;
  bool fails = false;
  std::unique_ptr<StreamPool> pool;
  options.spill = [&](std::string_view key, const std::vector<uint8_t>& blob, int64_t position) {
    if (fails) throw tsm::Error("disk full", ErrorKind::kInternal);
    CHECK((position == 1 && !pool->has("unknown")));  // no lock is held
    CHECK(kind_of([&] { pool->has(key); }) == ErrorKind::kBusy);
    CHECK(kind_of([&] { pool->feed(key, one, {}); }) == ErrorKind::kBusy);
    spilled[std::string(key)] = blob;
  };
  pool = std::make_unique<StreamPool>(made.model, options);
  const auto lone = made.model->create_stream();
  const Chunk chunk = input.chunk(*lone, 0, 1, nullptr);
  made.model->feed(&chunk, 1);
  for (const char* key : {"a", "b", "c", "a2", "b2"}) {
    pool->feed(key, one, {});
    run_out(*pool);
  }
  CHECK((spilled.size() == 2 && spilled["a"] == lone->save() && spilled["b"] == lone->save()));
  CHECK((!pool->has("a") && pool->has("c")));
  fails = true;
  CHECK(kind_of([&] { pool->feed("x", one, {}); }) == ErrorKind::kInternal);
  CHECK((pool->has("c") && !pool->has("x")));
  fails = false;
  pool->save("a2");
  pool->put("a", spilled["a"].data(), int64_t(spilled["a"].size()));
  CHECK((!pool->has("b2") && pool->stats().spilled == 3));  // "c" counts as used when it failed
  CHECK(pool->position("a") == 1);
  pool->feed("a", one, {});
  pool->feed("a2", one, {});
  pool->feed("y", one, {});
  CHECK(kind_of([&] { pool->feed("z", one, {}); }) == ErrorKind::kFull);  // all are busy
}

}  // namespace
