/* Tests what tsm/pool.h promises to C programs, with a language model: pool_c MODEL */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tsm/pool.h>

static int failures = 0;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      ++failures;                                                             \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)
#define OK(call) CHECK((call) == TSM_OK)
#define REFUSED(call, status, text) \
  CHECK((call) == (status) && strstr(tsm_last_error(), (text)) != NULL)

static const int64_t tokens[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

static tsm_pool_event next_event(tsm_pool* pool) {
  tsm_pool_event event = TSM_POOL_EVENT_INIT;
  size_t count = 0;
  OK(tsm_pool_take(pool, &event, 1, -1, &count));
  CHECK(count == 1);
  return event;
}

static void test_results(const tsm_model* model, tsm_pool* pool, size_t V) {
  tsm_stream* lone;
  tsm_pool_input input = TSM_POOL_INPUT_INIT;
  tsm_pool_draw draw = TSM_POOL_DRAW_INIT;
  tsm_pool_terms terms = TSM_POOL_TERMS_INIT;
  tsm_sampling sampling = TSM_SAMPLING_INIT;
  tsm_pool_event event;
  uint64_t ticket = 0;
  int64_t drawn[7], steps = 0;
  float scores[11], *logits = malloc(11 * V * sizeof(float));
  size_t bytes = 0;
  unsigned char *blob, *saved;
  OK(tsm_stream_create(model, &lone));
  input.tokens = tokens;
  input.T = 11;
  input.logits = TSM_POOL_ALL_LOGITS;
  terms.save = 1;
  terms.user = "ann";
  terms.user_bytes = 3;
  OK(tsm_pool_feed(pool, "a", 1, &input, &terms, &ticket));
  OK(tsm_stream_feed_tokens(lone, tokens, 11, NULL, logits, 11 * V, 0));
  OK(tsm_stream_save(lone, NULL, 0, &bytes));
  blob = malloc(bytes), saved = malloc(bytes);
  OK(tsm_stream_save(lone, blob, bytes, &bytes));
  event = next_event(pool);
  CHECK(event.ticket == ticket && event.kind == TSM_POOL_DONE && event.status == TSM_OK);
  CHECK(event.position == 11 && event.message[0] == 0 && event.tokens == NULL);
  CHECK(event.logit_count == 11 * V && memcmp(event.logits, logits, 11 * V * sizeof(float)) == 0);
  CHECK(event.log_probs == NULL && event.blob_bytes == bytes);
  CHECK(memcmp(event.blob, blob, bytes) == 0);
  OK(tsm_pool_release(pool, &event, 1));
  OK(tsm_pool_release(pool, &event, 1)); /* twice does nothing */
  input.logits = TSM_POOL_NO_LOGITS;
  input.log_probs = 1;
  OK(tsm_pool_feed(pool, "a", 1, &input, NULL, &ticket));
  OK(tsm_stream_score(lone, tokens, 11, NULL, scores));
  event = next_event(pool);
  CHECK(event.log_prob_count == 11 && memcmp(event.log_probs, scores, sizeof scores) == 0);
  CHECK(event.logits == NULL && event.blob == NULL);
  OK(tsm_pool_release(pool, &event, 1));
  sampling.seed = 5;
  draw.n = 7;
  draw.sampling = &sampling;
  OK(tsm_pool_generate(pool, "a", 1, &draw, NULL, &ticket));
  OK(tsm_stream_generate(lone, 7, &sampling, drawn));
  event = next_event(pool);
  CHECK(event.token_count == 7 && memcmp(event.tokens, drawn, sizeof drawn) == 0);
  OK(tsm_pool_release(pool, &event, 1));
  OK(tsm_stream_save(lone, blob, bytes, &bytes));
  OK(tsm_pool_save(pool, "a", 1, saved, bytes, &bytes));
  CHECK(memcmp(blob, saved, bytes) == 0);
  OK(tsm_pool_put(pool, "b", 1, blob, bytes));
  OK(tsm_pool_get_position(pool, "b", 1, &steps));
  CHECK(steps == 29);
  blob[60] ^= 1;
  REFUSED(tsm_pool_put(pool, "b", 1, blob, bytes), TSM_BAD_STATE, "checksum");
  REFUSED(tsm_pool_save(pool, "a", 1, saved, bytes - 1, &bytes), TSM_INVALID_ARGUMENT, "room = ");
  free(blob), free(saved), free(logits);
  tsm_stream_free(lone);
}

static void test_streams(tsm_pool* pool) {
  int64_t steps = -1;
  int known = -1;
  OK(tsm_pool_fork(pool, "a", 1, "twin", 4));
  OK(tsm_pool_reset(pool, "a", 1));
  OK(tsm_pool_get_position(pool, "a", 1, &steps));
  CHECK(steps == 0);
  OK(tsm_pool_get_position(pool, "twin", 4, &steps));
  CHECK(steps == 29);
  OK(tsm_pool_drop(pool, "twin", 4));
  OK(tsm_pool_has(pool, "twin", 4, &known));
  CHECK(known == 0);
  REFUSED(tsm_pool_reset(pool, "twin", 4), TSM_INVALID_ARGUMENT, "not in the pool");
}

static void test_refusals(const tsm_model* model, tsm_pool* pool) {
  tsm_pool* none = NULL;
  tsm_pool_options options = TSM_POOL_OPTIONS_INIT;
  tsm_pool_input input = TSM_POOL_INPUT_INIT;
  tsm_pool_draw draw = TSM_POOL_DRAW_INIT;
  tsm_pool_terms terms = TSM_POOL_TERMS_INIT;
  tsm_pool_event event = TSM_POOL_EVENT_INIT;
  uint64_t ticket = 0;
  size_t count = 9;
  REFUSED(tsm_pool_create(NULL, NULL, &none), TSM_INVALID_ARGUMENT, "model is null");
  REFUSED(tsm_pool_create(model, NULL, NULL), TSM_INVALID_ARGUMENT, "pool is null");
  options.max_batch = -1;
  REFUSED(tsm_pool_create(model, &options, &none), TSM_INVALID_ARGUMENT, "max_batch = -1");
  options.size = 3;
  REFUSED(tsm_pool_create(model, &options, &none), TSM_INVALID_ARGUMENT, "options->size");
  REFUSED(tsm_pool_feed(NULL, "k", 1, &input, NULL, &ticket), TSM_INVALID_ARGUMENT, "pool");
  REFUSED(tsm_pool_feed(pool, NULL, 1, &input, NULL, &ticket), TSM_INVALID_ARGUMENT, "key");
  REFUSED(tsm_pool_feed(pool, "k", 1, NULL, NULL, &ticket), TSM_INVALID_ARGUMENT, "input");
  REFUSED(tsm_pool_feed(pool, "k", 1, &input, NULL, NULL), TSM_INVALID_ARGUMENT, "ticket");
  input.T = 1;
  REFUSED(tsm_pool_feed(pool, "k", 1, &input, NULL, &ticket), TSM_INVALID_ARGUMENT, "tokens");
  input.tokens = tokens;
  input.token_type = 9;
  REFUSED(tsm_pool_feed(pool, "k", 1, &input, NULL, &ticket), TSM_INVALID_ARGUMENT, "token_type");
  input.token_type = TSM_INT64;
  input.logits = 3;
  REFUSED(tsm_pool_feed(pool, "k", 1, &input, NULL, &ticket), TSM_INVALID_ARGUMENT, "logits = 3");
  input.logits = 0;
  terms.priority = -1;
  REFUSED(tsm_pool_feed(pool, "k", 1, &input, &terms, &ticket), TSM_INVALID_ARGUMENT, "priority");
  terms.priority = 0;
  terms.timeout = -1;
  REFUSED(tsm_pool_feed(pool, "k", 1, &input, &terms, &ticket), TSM_DEADLINE, "deadline");
  draw.n = -1;
  REFUSED(tsm_pool_generate(pool, "k", 1, &draw, NULL, &ticket), TSM_INVALID_ARGUMENT, "n = -1");
  draw.n = 1;
  draw.stop_count = 1;
  REFUSED(tsm_pool_generate(pool, "k", 1, &draw, NULL, &ticket), TSM_INVALID_ARGUMENT, "stop");
  REFUSED(tsm_pool_take(pool, NULL, 1, 0, &count), TSM_INVALID_ARGUMENT, "events");
  REFUSED(tsm_pool_take(pool, &event, 0, 0, &count), TSM_INVALID_ARGUMENT, "1 or more");
  event.size = 8;
  REFUSED(tsm_pool_take(pool, &event, 1, 0, &count), TSM_INVALID_ARGUMENT, "events[0].size = 8");
  event.size = sizeof event;
  OK(tsm_pool_take(pool, &event, 1, 0, &count));
  CHECK(count == 0);
  CHECK(strcmp(tsm_status_name(TSM_FULL), "full") == 0);
  CHECK(strcmp(tsm_status_name(TSM_CLOSED), "closed") == 0);
  tsm_pool_free(NULL);
}

/* Events in a program that knows a later, longer struct. */
static void test_longer_events(tsm_pool* pool) {
  struct {
    tsm_pool_event known;
    int64_t more;
  } events[2];
  tsm_pool_input input = TSM_POOL_INPUT_INIT;
  uint64_t ticket;
  size_t taken = 0, count = 0;
  input.tokens = tokens;
  input.T = 2;
  OK(tsm_pool_feed(pool, "x", 1, &input, NULL, &ticket));
  OK(tsm_pool_feed(pool, "y", 1, &input, NULL, &ticket));
  memset(events, 0, sizeof events);
  for (events[0].known.size = sizeof events[0]; taken < 2; taken += count) {
    events[taken].known.size = sizeof events[0];
    OK(tsm_pool_take(pool, &events[taken].known, 2 - taken, -1, &count));
  }
  CHECK(events[0].known.position == 2 && events[1].known.position == 2);
  OK(tsm_pool_release(pool, &events[0].known, 2));
}

static int stored = 0, refuses = 0;
static int store(void* context, const void* key, size_t key_bytes, const void* blob,
                 size_t blob_bytes, int64_t position) {
  CHECK(context == &stored && key_bytes == 1 && blob_bytes > 44 && position == 1);
  CHECK(memcmp(blob, "tsmstate", 8) == 0 && memcmp(key, "a", 1) >= 0);
  ++stored;
  return refuses;
}

static void test_limits(const tsm_model* model) {
  tsm_pool* pool;
  tsm_pool_options options = TSM_POOL_OPTIONS_INIT;
  tsm_pool_input input = TSM_POOL_INPUT_INIT;
  tsm_pool_draw draw = TSM_POOL_DRAW_INIT;
  tsm_pool_stats stats = TSM_POOL_STATS_INIT;
  tsm_pool_event event = TSM_POOL_EVENT_INIT;
  struct pollfd waits;
  uint64_t ticket;
  size_t count = 0;
  int room = -1, cancelled = -1;
  options.max_queue = 1;
  options.max_streams = 1;
  options.spill = store;
  options.context = &stored;
  OK(tsm_pool_create(model, &options, &pool));
  input.tokens = tokens;
  input.T = 1;
  OK(tsm_pool_feed(pool, "a", 1, &input, NULL, &ticket));
  REFUSED(tsm_pool_feed(pool, "a", 1, &input, NULL, &ticket), TSM_FULL, "max_queue = 1");
  waits.fd = tsm_pool_fileno(pool);
  waits.events = POLLIN;
  CHECK(poll(&waits, 1, 60000) == 1);
  OK(tsm_pool_wait_room(pool, 0, &room));
  CHECK(room == 0);
  event = next_event(pool);
  OK(tsm_pool_release(pool, &event, 1));
  CHECK(poll(&waits, 1, 0) == 0);
  OK(tsm_pool_wait_room(pool, -1, &room));
  CHECK(room == 1);
  refuses = 1;
  REFUSED(tsm_pool_feed(pool, "b", 1, &input, NULL, &ticket), TSM_FULL, "spill returned 1");
  refuses = 0;
  OK(tsm_pool_feed(pool, "b", 1, &input, NULL, &ticket));
  CHECK(stored == 2);
  event = next_event(pool);
  OK(tsm_pool_release(pool, &event, 1));
  draw.n = (int64_t)1 << 40;
  OK(tsm_pool_generate(pool, "b", 1, &draw, NULL, &ticket));
  OK(tsm_pool_cancel(pool, ticket, &cancelled));
  CHECK(cancelled == 1);
  event = next_event(pool);
  CHECK(event.ticket == ticket && event.status == TSM_CANCELLED && event.position == 1);
  CHECK(event.message[0] != 0 && event.token_count == 0);
  OK(tsm_pool_release(pool, &event, 1));
  OK(tsm_pool_cancel(pool, ticket, &cancelled));
  CHECK(cancelled == 0);
  OK(tsm_pool_generate(pool, "b", 1, &draw, NULL, &ticket));
  OK(tsm_pool_close(pool, 0));
  event = next_event(pool);
  CHECK(event.status == TSM_CLOSED);
  OK(tsm_pool_release(pool, &event, 1));
  OK(tsm_pool_take(pool, &event, 1, -1, &count));
  CHECK(count == 0);
  REFUSED(tsm_pool_feed(pool, "b", 1, &input, NULL, &ticket), TSM_CLOSED, "closed");
  OK(tsm_pool_get_stats(pool, &stats));
  CHECK(stats.requests == 4 && stats.finished == 2 && stats.cancelled == 1 && stats.spilled == 1);
  CHECK(stats.failed == 1 && stats.queue == 0 && stats.streams == 1 && stats.refused == 1);
  tsm_pool_free(pool);
}

int main(int argc, char** argv) {
  tsm_model* model = NULL;
  tsm_pool* pool = NULL;
  tsm_model_info info = TSM_MODEL_INFO_INIT;
  if (argc != 2) return 2;
  OK(tsm_model_load(argv[1], NULL, &model));
  OK(tsm_model_get_info(model, &info));
  OK(tsm_pool_create(model, NULL, &pool));
  test_results(model, pool, (size_t)info.output_size);
  test_streams(pool);
  test_refusals(model, pool);
  test_longer_events(pool);
  test_limits(model);
  tsm_model_free(model); /* before its pool */
  tsm_pool_free(pool);
  if (failures == 0) printf("all checks passed\n");
  return failures != 0;
}
