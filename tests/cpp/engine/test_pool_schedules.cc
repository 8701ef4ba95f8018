// A pool of streams gives the same results as separate streams, under any schedule; fairness is
// measured in steps of its scheduler.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pools.h"

using namespace pools;

namespace {

// ---- equal to lone streams

// Random requests, and the answers that separate streams give.
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

// Counts the steps that each user gets while all of them have different kinds of requests waiting.
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
  // The user "many" has 90 more streams, each of which needs a step for its first logits, without a
  // token.
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
  // A second request with the same key as a long one waits for it.
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

FeedRequest eight_tokens() {
  static const std::vector<int64_t> tokens(8, 1);
  FeedRequest asked;
  asked.tokens = tokens.data();
  asked.steps = 8;
  return asked;
}

// Many short chunks run side by side, in pieces that together fit into the budget.
TEST_CASE("wide and short") {
  const Made made = make({});
  StreamPool pool(made.model, by_hand());
  const FeedRequest asked = eight_tokens();
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 64; ++i) tickets.push_back(pool.feed("k" + std::to_string(i), asked, {}));
  pool.step();
  CHECK((pool.stats().fed_tokens == 128 && pool.stats().batch_sizes[6] == 1));
  CHECK(pool.cancel(tickets[5]));  // between two pieces: its stream goes back
  CHECK(only_event(pool)->position == 0);
  CHECK(pool.save("k5") == made.model->create_stream()->save());
  for (int i = 0; i < 3; ++i) pool.step();
  const Events events = all_events(pool);
  CHECK(events.size() == 63);
  for (const auto& event : events) CHECK(event->position == 8);
  for (int i = 0; i < 4; ++i) pool.feed("few" + std::to_string(i), asked, {});
  pool.step();  // few of them need only one piece each
  CHECK(all_events(pool).size() == 4);

  Terms urgent;
  urgent.priority = 3;
  for (int i = 0; i < 63; ++i) pool.feed("slow" + std::to_string(i), asked, {});
  const uint64_t ticket = pool.feed("urgent", asked, urgent);
  pool.step();  // waiting requests of a lower priority do not shorten its piece
  CHECK(only_event(pool)->ticket == ticket);
}

// With more chunks than fit into a step, the first ones finish first, instead of all of them
// finishing late.
TEST_CASE("an overload is served in order") {
  const Made made = make({});
  StreamPool pool(made.model, by_hand());
  const FeedRequest asked = eight_tokens();
  std::vector<uint64_t> tickets;
  for (int i = 0; i < 256; ++i) tickets.push_back(pool.feed("k" + std::to_string(i), asked, {}));
  for (int i = 0; i < 4; ++i) pool.step();
  const Events events = all_events(pool);
  CHECK(pool.stats().batch_sizes[5] == 4);  // 32 x 4 steps
  REQUIRE(events.size() == 64);
  for (size_t i = 0; i < events.size(); ++i) CHECK(events[i]->ticket == tickets[i]);
}

}  // namespace
