/* Tests what tsm.h promises, with a language model whose cells take dt: contract_c MODEL */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tsm/tsm.h>

static int failures = 0;

#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      ++failures;                                                                             \
      fprintf(stderr, "%s:%d: failed: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
              tsm_last_error());                                                              \
    }                                                                                         \
  } while (0)
#define OK(call) CHECK((call) == TSM_OK)
#define REFUSED(call, status, text) \
  CHECK((call) == (status) && strstr(tsm_last_error(), text) != NULL)

static void test_null(const tsm_model* model, tsm_stream* stream) {
  tsm_model* m = NULL;
  tsm_stream* s = NULL;
  tsm_model_info info = TSM_MODEL_INFO_INIT;
  tsm_layer_info layer = TSM_LAYER_INFO_INIT;
  const char* text;
  const void* data;
  size_t bytes;
  int64_t steps;
  double time;
  float x[4];
  int64_t token = 1;
  REFUSED(tsm_model_load(NULL, NULL, &m), TSM_INVALID_ARGUMENT, "path is null");
  REFUSED(tsm_model_load("x", NULL, NULL), TSM_INVALID_ARGUMENT, "model is null");
  REFUSED(tsm_model_get_info(NULL, &info), TSM_INVALID_ARGUMENT, "model is null");
  REFUSED(tsm_model_get_info(model, NULL), TSM_INVALID_ARGUMENT, "info is null");
  REFUSED(tsm_model_get_layer_info(model, 0, NULL), TSM_INVALID_ARGUMENT, "info is null");
  REFUSED(tsm_model_get_layer_info(NULL, 0, &layer), TSM_INVALID_ARGUMENT, "model is null");
  REFUSED(tsm_model_get_state_info(NULL, 0, 0, &text, &steps), TSM_INVALID_ARGUMENT, "model is");
  REFUSED(tsm_model_get_config(model, NULL, &bytes), TSM_INVALID_ARGUMENT, "text is null");
  REFUSED(tsm_model_get_config(model, &text, NULL), TSM_INVALID_ARGUMENT, "bytes is null");
  REFUSED(tsm_model_get_asset(model, NULL, &data, &bytes), TSM_INVALID_ARGUMENT, "name is null");
  REFUSED(tsm_model_get_asset(model, "x", NULL, &bytes), TSM_INVALID_ARGUMENT, "data is null");
  REFUSED(tsm_model_feed_many(model, NULL, 1, NULL), TSM_INVALID_ARGUMENT, "chunks is null");
  REFUSED(tsm_stream_create(NULL, &s), TSM_INVALID_ARGUMENT, "model is null");
  REFUSED(tsm_stream_create(model, NULL), TSM_INVALID_ARGUMENT, "stream is null");
  REFUSED(tsm_stream_reset(NULL), TSM_INVALID_ARGUMENT, "stream is null");
  REFUSED(tsm_stream_fork(NULL, &s), TSM_INVALID_ARGUMENT, "stream is null");
  REFUSED(tsm_stream_fork(stream, NULL), TSM_INVALID_ARGUMENT, "copy is null");
  REFUSED(tsm_stream_get_position(NULL, &steps), TSM_INVALID_ARGUMENT, "stream is null");
  REFUSED(tsm_stream_get_position(stream, NULL), TSM_INVALID_ARGUMENT, "steps is null");
  REFUSED(tsm_stream_get_time(stream, NULL), TSM_INVALID_ARGUMENT, "time is null");
  REFUSED(tsm_stream_get_time(NULL, &time), TSM_INVALID_ARGUMENT, "stream is null");
  REFUSED(tsm_stream_feed_tokens(NULL, &token, 1, NULL, NULL, 0, 0), TSM_INVALID_ARGUMENT,
          "stream");
  REFUSED(tsm_stream_feed_tokens(stream, NULL, 1, NULL, NULL, 0, 0), TSM_INVALID_ARGUMENT,
          "tokens");
  REFUSED(tsm_stream_score(stream, NULL, 1, NULL, x), TSM_INVALID_ARGUMENT, "tokens is null");
  REFUSED(tsm_stream_score(stream, &token, 1, NULL, NULL), TSM_INVALID_ARGUMENT,
          "log_probs is null");
  REFUSED(tsm_stream_generate(stream, 1, NULL, NULL), TSM_INVALID_ARGUMENT, "tokens is null");
  REFUSED(tsm_stream_get_state(stream, 0, 0, NULL, 1), TSM_INVALID_ARGUMENT, "values is null");
  REFUSED(tsm_stream_save(stream, NULL, 0, NULL), TSM_INVALID_ARGUMENT, "bytes is null");
  REFUSED(tsm_stream_load(stream, NULL, 8), TSM_INVALID_ARGUMENT, "buffer is null");
  CHECK(m == NULL && s == NULL);
  tsm_model_free(NULL);
  tsm_stream_free(NULL);
}

static void test_facts(const tsm_model* model) {
  tsm_model_info info = TSM_MODEL_INFO_INIT, old;
  tsm_layer_info layer = TSM_LAYER_INFO_INIT;
  const char *name, *text;
  const void* data;
  int64_t width;
  size_t bytes;
  OK(tsm_model_get_info(model, &info));
  CHECK(info.family == TSM_LANGUAGE_MODEL && info.takes_tokens == 1 && info.takes_dt == 1);
  CHECK(info.vocab_size > 1 && info.output_size == info.vocab_size && info.input_size == 0);
  CHECK(info.layers >= 1 && info.threads == 1 && info.dtype == TSM_FLOAT32);
  CHECK(info.shortest_dt > 0 && info.fingerprint != 0 && strlen(info.level) > 0);
  OK(tsm_model_get_layer_info(model, info.layers - 1, &layer));
  CHECK(strlen(layer.cell) > 0 && layer.hidden_size > 0 && layer.states >= 1);
  OK(tsm_model_get_state_info(model, 0, 0, &name, &width));
  CHECK(strcmp(name, "h") == 0 && width > 0);
  REFUSED(tsm_model_get_layer_info(model, info.layers, &layer), TSM_INVALID_ARGUMENT, "layer = ");
  REFUSED(tsm_model_get_state_info(model, 0, -1, &name, &width), TSM_INVALID_ARGUMENT,
          "state = -1");
  OK(tsm_model_get_config(model, &text, &bytes));
  CHECK(bytes > 2 && text[0] == '{' && text[bytes - 1] == '}');
  OK(tsm_model_get_asset(model, "nothing", &data, &bytes));
  CHECK(data == NULL && bytes == 0);
  /* A program built with an older version, whose struct ended after the family. */
  memset(&old, 0x55, sizeof old);
  old.size = offsetof(tsm_model_info, takes_tokens);
  OK(tsm_model_get_info(model, &old));
  CHECK(old.family == TSM_LANGUAGE_MODEL && old.takes_tokens == 0x55555555);
  old.size = 0;
  REFUSED(tsm_model_get_info(model, &old), TSM_INVALID_ARGUMENT, "size = 0");
}

static void test_load(const char* path) {
  tsm_load_options options = TSM_LOAD_OPTIONS_INIT;
  tsm_model* model = NULL;
  REFUSED(tsm_model_load("no such file.tsm", NULL, &model), TSM_BAD_FILE, "no such file.tsm");
  options.dtype = 99;
  REFUSED(tsm_model_load(path, &options, &model), TSM_INVALID_ARGUMENT, "dtype = 99");
  options.dtype = TSM_FLOAT32;
  options.threads = -1;
  REFUSED(tsm_model_load(path, &options, &model), TSM_INVALID_ARGUMENT, "threads");
  CHECK(model == NULL);
  options.threads = 2;
  options.device = 7;
  REFUSED(tsm_model_load(path, &options, &model), TSM_INVALID_ARGUMENT, "device = 7");
  /* A program compiled before devices existed: memory past its struct is not read. */
  options.size = offsetof(tsm_load_options, device);
  OK(tsm_model_load(path, &options, &model));
  tsm_model_free(model);
  options = (tsm_load_options)TSM_LOAD_OPTIONS_INIT;
  options.dtype = TSM_INT8;
  OK(tsm_model_load(path, &options, &model));
  tsm_model_free(model);
}

static void test_feed(const tsm_model* model, int64_t V) {
  const int64_t tokens[3] = {0, 1, 0};
  int64_t bad[2] = {0, 0};
  const float dt[3] = {0.5f, 1.0f, 2.0f};
  float value = 0, late = -1;
  float* logits = malloc(3 * (size_t)V * sizeof(float));
  float* last = malloc((size_t)V * sizeof(float));
  int64_t steps = -1;
  double time = -1;
  tsm_stream* stream = NULL;
  OK(tsm_stream_create(model, &stream));
  OK(tsm_stream_feed_tokens(stream, tokens, 3, dt, logits, 3 * (size_t)V, 0));
  OK(tsm_stream_get_position(stream, &steps));
  OK(tsm_stream_get_time(stream, &time));
  CHECK(steps == 3 && time == 3.5);
  OK(tsm_stream_feed_tokens(stream, NULL, 0, NULL, last, (size_t)V, 1)); /* the current state */
  CHECK(memcmp(last, logits + 2 * V, (size_t)V * sizeof(float)) == 0);
  bad[1] = V;
  REFUSED(tsm_stream_feed_tokens(stream, bad, 2, NULL, NULL, 0, 0), TSM_INVALID_ARGUMENT, "token");
  REFUSED(tsm_stream_feed_tokens(stream, tokens, -1, NULL, NULL, 0, 0), TSM_INVALID_ARGUMENT, "-1");
  REFUSED(tsm_stream_feed_tokens(stream, tokens, 1, &late, NULL, 0, 0), TSM_INVALID_ARGUMENT, "dt");
  REFUSED(tsm_stream_feed_tokens(stream, tokens, 3, NULL, logits, 3 * (size_t)V - 1, 0),
          TSM_INVALID_ARGUMENT, "room = ");
  REFUSED(tsm_stream_feed_tokens(stream, tokens, INT64_MAX, NULL, logits, 3, 0),
          TSM_INVALID_ARGUMENT, "room = 3");
  REFUSED(tsm_stream_feed_values(stream, &value, 1, NULL, NULL, 0, 0), TSM_INVALID_ARGUMENT,
          "values");
  OK(tsm_stream_get_position(stream, &steps));
  CHECK(steps == 3);
  tsm_stream_free(stream);
  free(logits);
  free(last);
}

static void test_state(const tsm_model* model, int64_t V) {
  const int64_t tokens[4] = {1, 0, 1, 1};
  int64_t drawn[2][3], width = 0;
  float found[2][4];
  float* values;
  size_t bytes = 0, got = 0;
  unsigned char* blob;
  int64_t steps = -1;
  tsm_sampling sampling = TSM_SAMPLING_INIT;
  tsm_stream *a = NULL, *b = NULL, *c = NULL;
  OK(tsm_stream_create(model, &a));
  OK(tsm_stream_create(model, &b));
  OK(tsm_stream_feed_tokens(a, tokens, 4, NULL, NULL, 0, 0));
  OK(tsm_stream_fork(a, &c));
  OK(tsm_stream_save(a, NULL, 0, &bytes));
  blob = malloc(bytes);
  REFUSED(tsm_stream_save(a, blob, bytes - 1, &got), TSM_INVALID_ARGUMENT, "room = ");
  CHECK(got == bytes);
  OK(tsm_stream_save(a, blob, bytes, &got));
  OK(tsm_stream_load(b, blob, bytes));
  OK(tsm_stream_score(a, tokens, 4, NULL, found[0]));
  OK(tsm_stream_score(b, tokens, 4, NULL, found[1]));
  CHECK(memcmp(found[0], found[1], sizeof found[0]) == 0);
  CHECK(found[0][0] < 0 && isfinite(found[0][3]));
  OK(tsm_stream_score(c, tokens, 4, NULL, found[1]));
  CHECK(memcmp(found[0], found[1], sizeof found[0]) == 0);
  sampling.seed = 7;
  OK(tsm_stream_generate(a, 3, &sampling, drawn[0]));
  OK(tsm_stream_generate(b, 3, &sampling, drawn[1]));
  CHECK(memcmp(drawn[0], drawn[1], sizeof drawn[0]) == 0);
  CHECK(drawn[0][0] >= 0 && drawn[0][0] < V);
  sampling.temperature = -1;
  REFUSED(tsm_stream_generate(a, 3, &sampling, drawn[0]), TSM_INVALID_ARGUMENT, "temperature");
  blob[bytes / 2] ^= 1;
  REFUSED(tsm_stream_load(b, blob, bytes), TSM_BAD_STATE, "");
  REFUSED(tsm_stream_load(b, blob, 3), TSM_BAD_STATE, "");
  OK(tsm_stream_get_position(b, &steps));
  CHECK(steps == 11);
  OK(tsm_model_get_state_info(model, 0, 0, NULL, &width));
  values = malloc((size_t)width * sizeof(float));
  OK(tsm_stream_get_state(b, 0, 0, values, (size_t)width));
  CHECK(values[0] != 0);
  REFUSED(tsm_stream_get_state(b, 0, 0, values, (size_t)width - 1), TSM_INVALID_ARGUMENT,
          "room = ");
  OK(tsm_stream_reset(b));
  OK(tsm_stream_get_state(b, 0, 0, values, (size_t)width));
  CHECK(values[0] == 0 && values[width - 1] == 0);
  OK(tsm_stream_get_position(b, &steps));
  CHECK(steps == 0);
  tsm_stream_free(a);
  tsm_stream_free(b);
  tsm_stream_free(c);
  free(values);
  free(blob);
}

/* A program compiled with a later header: its structs are longer. */
typedef struct later_chunk {
  tsm_chunk known;
  int64_t later;
} later_chunk;

static void test_sizes(const tsm_model* model) {
  const int64_t tokens[2] = {1, 0};
  tsm_stream* streams[2] = {NULL, NULL};
  later_chunk later[2];
  tsm_chunk chunks[2] = {TSM_CHUNK_INIT, TSM_CHUNK_INIT};
  int64_t steps = -1;
  int i;
  CHECK(tsm_abi_version() == TSM_ABI_VERSION);
  memset(later, 0, sizeof later);
  for (i = 0; i < 2; ++i) {
    OK(tsm_stream_create(model, &streams[i]));
    chunks[i].stream = streams[i];
    chunks[i].tokens = tokens;
    chunks[i].T = 2;
    later[i].known = chunks[i];
    later[i].known.size = sizeof(later_chunk);
  }
  OK(tsm_model_feed_many(model, &later[0].known, 2, NULL));
  OK(tsm_stream_get_position(streams[1], &steps));
  CHECK(steps == 2);
  later[1].later = 1; /* asks for what this library cannot do */
  REFUSED(tsm_model_feed_many(model, &later[0].known, 2, NULL), TSM_INVALID_ARGUMENT,
          "does not know");
  CHECK(tsm_last_error_chunk() == 1);
  chunks[1].size = 0;
  REFUSED(tsm_model_feed_many(model, chunks, 2, NULL), TSM_INVALID_ARGUMENT, "chunks[1]: size = 0");
  chunks[0].size = 8;
  REFUSED(tsm_model_feed_many(model, chunks, 2, NULL), TSM_INVALID_ARGUMENT,
          "chunks[0].size = 8; accepted: sizeof");
  chunks[0].size = sizeof(tsm_chunk) + 1;
  REFUSED(tsm_model_feed_many(model, chunks, 2, NULL), TSM_INVALID_ARGUMENT, "chunks[0].size");
  OK(tsm_stream_get_position(streams[1], &steps));
  CHECK(steps == 2);
  for (i = 0; i < 2; ++i) tsm_stream_free(streams[i]);
}

static void test_token_types(const tsm_model* model) {
  const int64_t wide[3] = {1, 0, 1};
  const int32_t narrow[3] = {1, 0, 1}, below[1] = {-1};
  const uint16_t small[3] = {1, 0, 1};
  const void* forms[3];
  float found[3][3];
  int32_t type;
  tsm_stream* stream = NULL;
  tsm_chunk chunk = TSM_CHUNK_INIT;
  forms[TSM_INT64] = wide, forms[TSM_INT32] = narrow, forms[TSM_UINT16] = small;
  OK(tsm_stream_create(model, &stream));
  for (type = TSM_INT64; type <= TSM_UINT16; ++type) {
    OK(tsm_stream_reset(stream));
    chunk.stream = stream;
    chunk.tokens = forms[type];
    chunk.token_type = type;
    chunk.T = 3;
    chunk.log_probs = found[type];
    OK(tsm_stream_feed_chunk(&chunk, NULL));
    CHECK(memcmp(found[type], found[TSM_INT64], sizeof found[0]) == 0);
  }
  chunk.tokens = below;
  chunk.token_type = TSM_INT32;
  chunk.T = 1;
  REFUSED(tsm_stream_feed_chunk(&chunk, NULL), TSM_INVALID_ARGUMENT, "token -1 at step 0");
  CHECK(tsm_last_error_chunk() == -1); /* a stream's own call has no numbers */
  chunk.token_type = 3;
  REFUSED(tsm_stream_feed_chunk(&chunk, NULL), TSM_INVALID_ARGUMENT, "token_type = 3");
  REFUSED(tsm_stream_feed_chunk(NULL, NULL), TSM_INVALID_ARGUMENT, "chunk is null");
  tsm_stream_free(stream);
}

static void test_failures(const tsm_model* model) {
  const int64_t tokens[2] = {1, 0}, bad = -5;
  int64_t steps = -1;
  int i;
  tsm_stream* streams[4] = {NULL, NULL, NULL, NULL};
  tsm_chunk chunks[4] = {TSM_CHUNK_INIT, TSM_CHUNK_INIT, TSM_CHUNK_INIT, TSM_CHUNK_INIT};
  tsm_failure became[4];
  tsm_call call = TSM_CALL_INIT;
  for (i = 0; i < 4; ++i) {
    OK(tsm_stream_create(model, &streams[i]));
    chunks[i].stream = streams[i];
    chunks[i].tokens = tokens;
    chunks[i].T = 2;
  }
  chunks[1].tokens = &bad;
  chunks[1].T = 1;
  chunks[2].stream = NULL;
  REFUSED(tsm_model_feed_many(model, chunks, 4, NULL), TSM_INVALID_ARGUMENT, "chunks[2]: stream");
  CHECK(tsm_last_error_chunk() == 2);
  call.failures = became;
  memset(became, 0x55, sizeof became);
  OK(tsm_model_feed_many(model, chunks, 4, &call));
  CHECK(became[0].status == TSM_OK && became[0].message[0] == 0);
  CHECK(became[1].status == TSM_INVALID_ARGUMENT && strstr(became[1].message, "token -5"));
  CHECK(became[2].status == TSM_INVALID_ARGUMENT && strstr(became[2].message, "stream is null"));
  CHECK(became[3].status == TSM_OK);
  for (i = 0; i < 4; ++i) {
    OK(tsm_stream_get_position(streams[i], &steps));
    CHECK(steps == (i == 0 || i == 3 ? 2 : 0));
    tsm_stream_free(streams[i]);
  }
  REFUSED(tsm_model_feed_many(NULL, chunks, 4, &call), TSM_INVALID_ARGUMENT, "model is null");
}

static void test_generate_many(const tsm_model* model) {
  tsm_stream *many[2] = {NULL, NULL}, *alone = NULL;
  tsm_generation items[2] = {TSM_GENERATION_INIT, TSM_GENERATION_INIT};
  tsm_sampling sampling[2] = {TSM_SAMPLING_INIT, TSM_SAMPLING_INIT};
  tsm_failure became[2];
  tsm_call call = TSM_CALL_INIT;
  int64_t drawn[2][9], one[9], steps = -1;
  int i;
  sampling[0].seed = 4;
  sampling[1].temperature = 0.5;
  sampling[1].top_k = 3;
  for (i = 0; i < 2; ++i) {
    OK(tsm_stream_create(model, &many[i]));
    items[i].stream = many[i];
    items[i].n = i == 0 ? 9 : 4;
    items[i].tokens = drawn[i];
    items[i].sampling = &sampling[i];
  }
  OK(tsm_model_generate_many(model, items, 2, NULL));
  for (i = 0; i < 2; ++i) {
    OK(tsm_stream_create(model, &alone));
    OK(tsm_stream_generate(alone, items[i].n, &sampling[i], one));
    CHECK(memcmp(one, drawn[i], (size_t)items[i].n * sizeof one[0]) == 0);
    tsm_stream_free(alone);
  }
  sampling[1].top_p = 0;
  REFUSED(tsm_model_generate_many(model, items, 2, NULL), TSM_INVALID_ARGUMENT,
          "generations[1]: top_p = 0");
  CHECK(tsm_last_error_chunk() == 1);
  call.failures = became;
  OK(tsm_model_generate_many(model, items, 2, &call));
  CHECK(became[0].status == TSM_OK && became[1].status == TSM_INVALID_ARGUMENT);
  OK(tsm_stream_get_position(many[0], &steps));
  CHECK(steps == 18);
  OK(tsm_stream_get_position(many[1], &steps));
  CHECK(steps == 4);
  REFUSED(tsm_model_generate_many(model, NULL, 1, NULL), TSM_INVALID_ARGUMENT,
          "generations is null");
  REFUSED(tsm_stream_generate_tokens(NULL, NULL), TSM_INVALID_ARGUMENT, "generation is null");
  for (i = 0; i < 2; ++i) tsm_stream_free(many[i]);
}

static void test_cancel(const tsm_model* model) {
  const int64_t tokens[2] = {1, 0};
  int64_t drawn[2], steps = -1;
  tsm_cancel* cancel = NULL;
  tsm_stream* stream = NULL;
  tsm_chunk chunk = TSM_CHUNK_INIT;
  tsm_generation generation = TSM_GENERATION_INIT;
  tsm_failure failure;
  tsm_call call = TSM_CALL_INIT;
  REFUSED(tsm_cancel_create(NULL), TSM_INVALID_ARGUMENT, "cancel is null");
  OK(tsm_cancel_create(&cancel));
  OK(tsm_stream_create(model, &stream));
  CHECK(tsm_cancel_is_set(cancel) == 0);
  tsm_cancel_set(cancel);
  CHECK(tsm_cancel_is_set(cancel) == 1);
  chunk.stream = generation.stream = stream;
  chunk.tokens = tokens;
  chunk.T = generation.n = 2;
  generation.tokens = drawn;
  call.cancel = cancel;
  call.failures = &failure;
  REFUSED(tsm_stream_feed_chunk(&chunk, cancel), TSM_CANCELLED, "cancelled");
  REFUSED(tsm_stream_generate_tokens(&generation, cancel), TSM_CANCELLED, "cancelled");
  REFUSED(tsm_model_feed_many(model, &chunk, 1, &call), TSM_CANCELLED, "cancelled");
  REFUSED(tsm_model_generate_many(model, &generation, 1, &call), TSM_CANCELLED, "cancelled");
  OK(tsm_stream_get_position(stream, &steps));
  CHECK(steps == 0);
  tsm_cancel_clear(cancel);
  OK(tsm_model_feed_many(model, &chunk, 1, &call));
  OK(tsm_stream_generate_tokens(&generation, cancel));
  OK(tsm_stream_get_position(stream, &steps));
  CHECK(steps == 4);
  CHECK(strcmp(tsm_status_name(TSM_CANCELLED), "cancelled") == 0);
  tsm_cancel_set(NULL);
  tsm_cancel_clear(NULL);
  CHECK(tsm_cancel_is_set(NULL) == 0);
  tsm_cancel_free(NULL);
  tsm_cancel_free(cancel);
  tsm_stream_free(stream);
}

static void test_many(const tsm_model* model, int64_t V) {
  const int64_t tokens[3] = {1, 0, 1};
  int64_t bad = -5, steps = -1;
  float scores[2];
  float* many = malloc((size_t)V * sizeof(float));
  float* one = malloc((size_t)V * sizeof(float));
  tsm_stream *a = NULL, *b = NULL, *c = NULL;
  tsm_chunk chunks[2] = {TSM_CHUNK_INIT, TSM_CHUNK_INIT};
  OK(tsm_stream_create(model, &a));
  OK(tsm_stream_create(model, &b));
  OK(tsm_stream_create(model, &c));
  chunks[0].stream = a;
  chunks[0].tokens = tokens;
  chunks[0].T = 3;
  chunks[0].logits = many;
  chunks[0].room = (size_t)V;
  chunks[0].last_only = 1;
  chunks[1].stream = b;
  chunks[1].tokens = tokens;
  chunks[1].T = 2;
  chunks[1].log_probs = scores;
  OK(tsm_model_feed_many(model, chunks, 2, NULL));
  OK(tsm_stream_feed_tokens(c, tokens, 3, NULL, one, (size_t)V, 1));
  CHECK(memcmp(many, one, (size_t)V * sizeof(float)) == 0);
  CHECK(scores[0] < 0 && scores[1] < 0);
  OK(tsm_model_feed_many(model, NULL, 0, NULL));
  chunks[1].log_probs = many + V - 1;
  REFUSED(tsm_model_feed_many(model, chunks, 2, NULL), TSM_INVALID_ARGUMENT,
          "chunks[1]: its outputs overlap those of chunks[0]");
  chunks[1].log_probs = scores;
  chunks[1].stream = a;
  REFUSED(tsm_model_feed_many(model, chunks, 2, NULL), TSM_INVALID_ARGUMENT, "");
  chunks[1].stream = NULL;
  REFUSED(tsm_model_feed_many(model, chunks, 2, NULL), TSM_INVALID_ARGUMENT,
          "chunks[1]: stream is null");
  chunks[1].stream = b;
  chunks[1].tokens = &bad;
  chunks[1].T = 1;
  REFUSED(tsm_model_feed_many(model, chunks, 2, NULL), TSM_INVALID_ARGUMENT, "-5");
  OK(tsm_stream_get_position(a, &steps)); /* the good chunk was not fed either */
  CHECK(steps == 3);
  tsm_stream_free(a);
  tsm_stream_free(b);
  tsm_stream_free(c);
  free(many);
  free(one);
}

int main(int argc, char** argv) {
  tsm_model* model = NULL;
  tsm_stream* stream = NULL;
  tsm_model_info info = TSM_MODEL_INFO_INIT;
  const int64_t token = 0;
  float log_prob = 1;
  if (argc != 2) return 2;
  CHECK(strcmp(tsm_last_error(), "") == 0);
  CHECK(strcmp(tsm_status_name(TSM_BUSY), "busy") == 0);
  CHECK(strcmp(tsm_status_name(1234), "unknown status") == 0);
  OK(tsm_model_load(argv[1], NULL, &model));
  OK(tsm_model_get_info(model, &info));
  OK(tsm_stream_create(model, &stream));
  test_null(model, stream);
  test_facts(model);
  test_load(argv[1]);
  test_feed(model, info.output_size);
  test_state(model, info.output_size);
  test_many(model, info.output_size);
  test_sizes(model);
  test_token_types(model);
  test_failures(model);
  test_generate_many(model);
  test_cancel(model);
  tsm_model_free(model); /* before its stream */
  OK(tsm_stream_score(stream, &token, 1, NULL, &log_prob));
  CHECK(log_prob < 0);
  tsm_stream_free(stream);
  if (failures == 0) printf("tsm %s: all checks passed\n", tsm_version());
  return failures != 0;
}
