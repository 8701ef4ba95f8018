// A pool of streams gives the same results as separate streams, whatever else it does; waiting is
// counted in steps of its scheduler.
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/pool/pool.h"
#include "fed_models.h"

using namespace fed;
using tsm::ErrorKind;
using tsm::FeedRequest;
using tsm::GenerateRequest;
using tsm::LogitsOf;
using tsm::PoolEvent;
using tsm::PoolOptions;
using tsm::StreamPool;
using tsm::Terms;

namespace {

using Events = std::vector<std::unique_ptr<PoolEvent>>;

template <class Call>
ErrorKind kind_of(const Call& call) {
  try {
    call();
  } catch (const tsm::Error& error) {
    return error.kind;
  }
  return ErrorKind();
}

PoolOptions by_hand() {
  PoolOptions options;
  options.own_thread = false;
  return options;
}

FeedRequest feed_of(const Input& input, int64_t first, int64_t last, LogitsOf logits, bool scored) {
  FeedRequest asked;
  asked.steps = last - first;
  if (!input.tokens.empty()) asked.tokens = input.tokens.data() + first;
  if (!input.values.empty()) asked.values = input.values.data() + first * input.width;
  if (!input.dt.empty()) asked.dt = input.dt.data() + first;
  asked.logits = logits;
  asked.log_probs = scored;
  return asked;
}

GenerateRequest generation_of(int64_t n, uint64_t seed = 0) {
  GenerateRequest asked;
  asked.n = n;
  asked.sampling.seed = seed;
  return asked;
}

void run_out(StreamPool& pool) {
  while (pool.step()) {
  }
}

Events all_events(StreamPool& pool) { return pool.take(1 << 20, 0); }

bool readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

// The only event that can be taken now.
std::unique_ptr<PoolEvent> only_event(StreamPool& pool) {
  Events events = all_events(pool);
  CHECK(events.size() == 1);
  return events.empty() ? std::make_unique<PoolEvent>() : std::move(events.front());
}

// ---- equal to lone streams

// Random requests, and the answers of separate streams.
class Expected {
 public:
  Expected(const Model& model, uint64_t seed, const std::string& names)
      : model_(model), random_(seed), names_(names) {}

  // Submits one more request for one of a few streams.
  void submit(StreamPool& pool) {
    const std::string key = names_ + std::to_string(random_.below(9));
    std::unique_ptr<Stream>& stream = streams_[key];
    if (!stream) stream = model_.create_stream();
    const bool lm = model_.family() == tsm::Family::kLanguageModel;
    std::string user = key;
    user.resize(size_t(random_.below(3)));
    Terms terms;
    terms.user = user;
    terms.priority = int(random_.below(tsm::kPriorities));
    terms.save = random_.below(3) == 0;
    auto answer = std::make_unique<PoolEvent>();
    uint64_t ticket = 0;
    if (lm && random_.below(2) == 0)
      ticket = generate(pool, key, *stream, terms, *answer);
    else
      ticket = feed(pool, key, *stream, terms, lm, *answer);
    answer->position = stream->position();
    if (terms.save) answer->blob = stream->save();
    answers_[ticket] = std::move(answer);
  }

  void compare(const PoolEvent& found) {
    const auto at = answers_.find(found.ticket);
    CHECK(at != answers_.end());
    if (at == answers_.end()) return;
    const PoolEvent& expected = *at->second;
    if (!found.done) {
      std::vector<int64_t>& heard = heard_[found.ticket];
      heard.insert(heard.end(), found.tokens.begin(), found.tokens.end());
      CHECK((heard.size() <= expected.tokens.size() &&
             std::equal(heard.begin(), heard.end(), expected.tokens.begin())));
      return;
    }
    CHECK((found.error == ErrorKind() && found.message.empty()));
    CHECK((found.tokens == expected.tokens && found.position == expected.position));
    CHECK((same(found.logits, expected.logits) && same(found.log_probs, expected.log_probs)));
    CHECK(found.blob == expected.blob);
    answers_.erase(at);
  }

  bool asked(uint64_t ticket) const { return answers_.count(ticket) > 0; }
  bool all_answered() const { return answers_.empty(); }
  const std::map<std::string, std::unique_ptr<Stream>>& streams() const { return streams_; }

 private:
  uint64_t feed(StreamPool& pool, const std::string& key, Stream& stream, const Terms& terms,
                bool lm, PoolEvent& answer) {
    const int64_t T = random_.below(4) == 0 ? random_.below(60) : random_.below(4);
    const int64_t V = model_.output_size();
    const Input input(model_, T, random_.next());
    const auto logits = LogitsOf(random_.below(3));
    const bool scored = lm && random_.below(2) == 0;
    const uint64_t ticket = pool.feed(key, feed_of(input, 0, T, logits, scored), terms);
    Chunk chunk = input.chunk(stream, 0, T, nullptr);
    answer.logits.resize(size_t(logits == LogitsOf::kNone   ? 0
                                : logits == LogitsOf::kLast ? V
                                                            : T * V));
    if (!answer.logits.empty()) chunk.logits = answer.logits.data();
    chunk.last_only = logits == LogitsOf::kLast;
    answer.log_probs.resize(scored ? size_t(T) : 0);
    if (scored && T > 0) chunk.scores = answer.log_probs.data();
    model_.feed(&chunk, 1);
    return ticket;
  }

  uint64_t generate(StreamPool& pool, const std::string& key, Stream& stream, const Terms& terms,
                    PoolEvent& answer) {
    GenerateRequest asked = generation_of(random_.below(20), random_.next());
    asked.sampling.temperature = double(random_.below(3));
    asked.sampling.top_k = random_.below(5);
    asked.sampling.top_p = random_.below(2) ? 1 : 0.7;
    if (model_.takes_dt() && random_.below(2)) asked.dt = 0.5f;
    asked.progress = random_.below(2) == 0;
    const int64_t stop[] = {random_.below(model_.vocab_size())};
    asked.stop = stop;
    asked.stop_count = random_.below(2);
    const uint64_t ticket = pool.generate(key, asked, terms);
    std::vector<int64_t> tokens(size_t(asked.n));
    const auto twin = stream.fork();
    twin->generate(asked.n, asked.sampling, tokens.data(), asked.dt);
    if (asked.stop_count > 0) {
      const auto end = std::find(tokens.begin(), tokens.end(), stop[0]);
      if (end != tokens.end()) tokens.erase(end + 1, tokens.end());
    }
    answer.tokens.resize(tokens.size());
    stream.generate(int64_t(tokens.size()), asked.sampling, answer.tokens.data(), asked.dt);
    return ticket;
  }

  const Model& model_;
  sample::Random random_;
  const std::string names_;
  std::map<std::string, std::unique_ptr<Stream>> streams_;
  std::map<uint64_t, std::unique_ptr<PoolEvent>> answers_;
  std::map<uint64_t, std::vector<int64_t>> heard_;
};

void test_any_schedule(const sample::Spec& spec, Weights weights, const Isa* isa, int threads,
                       uint64_t seed) {
  const Made made = make(spec, weights, isa, threads);
  sample::Random random(seed);
  PoolOptions options = by_hand();
  options.max_batch = 1 + random.below(12);
  options.prefill_steps = 1 + random.below(9);
  options.prefill_budget = options.prefill_steps + random.below(30);
  StreamPool pool(made.model, options);
  Expected expected(*made.model, seed, "s");
  for (int i = 0; i < 120; ++i) {
    expected.submit(pool);
    for (int64_t steps = random.below(3); steps > 0; --steps) pool.step();
    if (random.below(4) == 0)
      for (auto& event : pool.take(1 + random.below(5), 0)) expected.compare(*event);
  }
  run_out(pool);
  for (auto& event : all_events(pool)) {
    expected.compare(*event);
    pool.give_back(std::move(event));
  }
  CHECK(expected.all_answered());
  for (const auto& [key, stream] : expected.streams()) CHECK(pool.save(key) == stream->save());
}

TEST_CASE("schedules") {
  std::vector<sample::Spec> specs(6);
  specs[1].cell = sample::lstm();
  specs[1].input = "one_hot";
  specs[2].cell = sample::leaky();
  specs[3].cell = sample::nru();
  specs[3].scale = 0.1f;
  specs[4].family = "classifier";
  specs[4].C = 3;
  specs[5].family = "tagger";
  specs[5].input = "values";
  specs[5].C = 4;
  uint64_t seed = 0;
  for (const sample::Spec& spec : specs) {
    for (const Weights weights : kAll) {
      for (int i = 0; i < 3; ++i) test_any_schedule(spec, weights, nullptr, 1 + i % 2, ++seed);
    }
  }
  for (const Isa* isa : tsm::host_isas())
    test_any_schedule(specs[0], Weights::kFloat32, isa, 1, ++seed);
}

// Several threads submit requests, and two others take the events.
TEST_CASE("threads") {
  const Made made = make({});
  PoolOptions options;
  options.max_queue = 64;
  StreamPool pool(made.model, options);
  std::vector<std::unique_ptr<Expected>> askers;
  std::vector<std::thread> threads;
  std::vector<Events> taken(2);
  for (int i = 0; i < 3; ++i)
    askers.push_back(
        std::make_unique<Expected>(*made.model, uint64_t(i), std::string(1, char('a' + i))));
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&pool, &asker = *askers[size_t(i)]] {
      for (int left = 150; left > 0;) {
        if (kind_of([&] { asker.submit(pool); }) == ErrorKind())
          --left;
        else
          pool.wait_room(-1);
      }
    });
  }
  for (Events& events : taken) {
    threads.emplace_back([&pool, &events] {
      for (;;) {
        Events more = pool.take(7, -1);
        if (more.empty()) return;
        std::move(more.begin(), more.end(), std::back_inserter(events));
      }
    });
  }
  for (size_t i = 0; i < 3; ++i) threads[i].join();
  pool.close(true);
  for (size_t i = 3; i < 5; ++i) threads[i].join();
  for (const Events& events : taken)
    for (const auto& event : events)
      for (const auto& asker : askers)
        if (event->done && asker->asked(event->ticket)) asker->compare(*event);
  for (const auto& asker : askers) CHECK(asker->all_answered());
  CHECK(pool.stats().finished == 450);
  for (const auto& asker : askers)
    for (const auto& [key, stream] : asker->streams()) CHECK(pool.save(key) == stream->save());
}

// ---- who waits for whom

TEST_CASE("a heavy user does not starve others") {
  const Made made = make({});
  PoolOptions options = by_hand();
  options.max_batch = 8;
  StreamPool pool(made.model, options);
  Terms heavy, light;
  heavy.user = "heavy";
  light.user = "light";
  for (int i = 0; i < 2000; ++i) pool.generate("h" + std::to_string(i), generation_of(100), heavy);
  for (int i = 0; i < 5; ++i) pool.step();
  const uint64_t ticket = pool.generate("l", generation_of(10), light);
  int steps = 0;
  for (bool done = false; !done && steps < 1000; ++steps) {
    pool.step();
    for (const auto& event : all_events(pool)) done = done || event->ticket == ticket;
  }
  CHECK(steps == 11);  // one for the first logits, one for each token
}

// Counts the steps of users with different requests while all of them have work.
TEST_CASE("equal shares") {
  const Made made = make({});
  PoolOptions options = by_hand();
  options.max_batch = 6;
  StreamPool pool(made.model, options);
  const Input input(*made.model, 4000, 1);
  std::map<std::string, int64_t> progress;
  for (const char* user : {"feeds", "draws", "many"}) {
    Terms terms;
    terms.user = user;
    const int count = std::string(user) == "many" ? 100 : 10;
    for (int i = 0; i < count; ++i) {
      const std::string key = user + std::to_string(i);
      if (std::string(user) == "feeds") {
        pool.feed(key, feed_of(input, 0, 4000, LogitsOf::kNone, false), terms);
      } else {
        GenerateRequest asked = generation_of(4000);
        asked.progress = true;  // so that it keeps its progress when the pool closes
        pool.generate(key, asked, terms);
      }
    }
  }
  for (int i = 0; i < 600; ++i) pool.step();
  const tsm::PoolStats stats = pool.stats();
  pool.close(false);
  int64_t draws = 0, many = 0;
  for (int i = 0; i < 10; ++i) draws += pool.position("draws" + std::to_string(i));
  for (int i = 0; i < 100; ++i) many += pool.position("many" + std::to_string(i));
  CHECK(draws + many == stats.generated_tokens);
  // "many" needs 90 more first logits, each of which is a step without a token.
  CHECK(std::abs(stats.fed_tokens - draws) <= 24);
  CHECK(std::abs(stats.fed_tokens - many) <= 24 + 100);
  CHECK(stats.fed_tokens > 500);
}

TEST_CASE("a long feed does not hold short ones back") {
  const Made made = make({});
  StreamPool pool(made.model, by_hand());
  const Input input(*made.model, 5000, 1);
  for (int i = 0; i < 15; ++i)
    pool.feed("long" + std::to_string(i), feed_of(input, 0, 5000, LogitsOf::kNone, false), {});
  pool.step();
  pool.feed("short", feed_of(input, 0, 8, LogitsOf::kLast, false), {});
  pool.step();
  CHECK(only_event(pool)->position == 8);
  pool.feed("one", feed_of(input, 0, 1, LogitsOf::kLast, false), {});
  pool.step();
  CHECK(only_event(pool)->position == 1);
  // A second request on the key of a long one waits for it.
  const uint64_t second = pool.feed("long0", feed_of(input, 0, 1, LogitsOf::kNone, false), {});
  run_out(pool);
  for (const auto& event : all_events(pool))
    CHECK((event->ticket != second || event->position == 5001));
}

TEST_CASE("priority") {
  const Made made = make({});
  PoolOptions options = by_hand();
  options.max_batch = 2;
  StreamPool pool(made.model, options);
  for (int i = 0; i < 10; ++i) pool.generate("low" + std::to_string(i), generation_of(5), {});
  Terms urgent;
  urgent.priority = 3;
  const uint64_t ticket = pool.generate("high", generation_of(5), urgent);
  for (int i = 0; i < 6; ++i) pool.step();
  CHECK(only_event(pool)->ticket == ticket);
}

// ---- requests that end early

// A request that is cancelled after any number of steps leaves its stream as before the request or,
// with progress, after the last token that was drawn.
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

// The last event has the position before the running request, not that request's current position.
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

// Events that the caller could not deliver come again, first and in order.
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

TEST_CASE("the sizes of a step on a CPU") {
  const Made made = make({});
  const std::vector<int64_t> tokens(9, 1);
  FeedRequest asked;
  asked.tokens = tokens.data();
  asked.steps = 1;
  StreamPool wide(made.model, by_hand());
  for (int i = 0; i < 65; ++i) wide.feed("k" + std::to_string(i), asked, {});
  wide.step();
  CHECK(all_events(wide).size() == 64);
  asked.steps = 9;
  StreamPool deep(made.model, by_hand());
  deep.feed("k", asked, {});
  deep.step();
  CHECK(all_events(deep).empty());  // 8 of 9
  deep.step();
  CHECK(all_events(deep).size() == 1);
  PoolOptions options = by_hand();
  options.prefill_steps = 200;  // more than the default budget, which grows with it
  StreamPool(made.model, options);
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
