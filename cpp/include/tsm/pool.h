/* tsm: many streams behind one queue. C99, built on tsm.h, whose rules apply here as well.
 *
 * A pool keeps streams by key and runs the requests of all users together, step by step, on its
 * own thread. Streams may join and leave between any two steps. On the CPU the results equal those
 * of a stream used alone, bit for bit.
 *
 *   tsm_pool* pool;
 *   tsm_pool_event event = TSM_POOL_EVENT_INIT;
 *   size_t count;
 *   tsm_pool_create(model, NULL, &pool);
 *   tsm_pool_feed(pool, "ann", 3, &feed, NULL, &ticket);         // returns at once
 *   tsm_pool_take(pool, &event, 1, -1, &count);                  // waits for the first event
 *   tsm_pool_release(pool, &event, count);
 *   tsm_pool_free(pool);
 *
 * - A request for an unknown key begins a stream at position 0. Requests for the same key run in
 *   the order of their arrival. The input is copied.
 * - Users get equal shares of the steps, however many requests they queue. A long request runs in
 *   short pieces, so that it does not delay short ones.
 * - A request that fails, is cancelled or misses its deadline leaves its stream unchanged. The
 *   exception is a generation with progress: its stream keeps the tokens fed so far, and its last
 *   event lists them.
 * - A request that cannot be accepted now is refused at once with TSM_FULL.
 * - Any thread may call any function. tsm_pool_free requires that no other call uses the pool.
 * - In a child process created by fork(), a pool of the parent can only be freed, which releases no
 *   memory there. All other calls return TSM_CLOSED.
 */
#ifndef TSM_POOL_H
#define TSM_POOL_H

#include "tsm/tsm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsm_pool tsm_pool;

/* Called with the state of a stream that must make room for another. Return 0 once the state is
 * stored. With any other value the stream stays, and the call that needs the room fails with
 * TSM_FULL. It is called on the thread that made that call, and may itself call the pool; for the
 * key that it is called with, that is TSM_BUSY. On two threads, such functions must not ask for
 * each other's keys: both would wait. */
typedef int (*tsm_pool_spill)(void* context, const void* key, size_t key_bytes, const void* blob,
                              size_t blob_bytes, int64_t position);

typedef struct tsm_pool_options {
  size_t size;         /* sizeof(tsm_pool_options) */
  int64_t max_queue;   /* accepted requests whose last event was not yet taken */
  int64_t max_streams; /* in memory. A further stream replaces the least recently used idle one,
                          which must have been saved or is spilled; otherwise TSM_FULL */
  /* 0 in any of these three means the default for the model's device: 64, 8 and 128 on a CPU,
     1,024, 256 and 65,536 on a GPU, where this budget grows while a step takes less than 20 ms */
  int64_t max_batch;      /* requests per step */
  int64_t prefill_steps;  /* per request and step */
  int64_t prefill_budget; /* per step, over all requests that feed more than one step */
  tsm_pool_spill spill;   /* null: none */
  void* context;          /* passed to spill */
} tsm_pool_options;
#define TSM_POOL_OPTIONS_INIT {sizeof(tsm_pool_options), 4096, 65536, 0, 0, 0, 0, 0}

/* options: null for TSM_POOL_OPTIONS_INIT. The pool keeps the model alive. */
TSM_API tsm_status tsm_pool_create(const tsm_model* model, const tsm_pool_options* options,
                                   tsm_pool** pool);
/* Refuses new requests with TSM_CLOSED. With drain != 0 pending requests are finished first,
 * otherwise they end with TSM_CLOSED. Afterwards events can still be taken and states saved. */
TSM_API tsm_status tsm_pool_close(tsm_pool* pool, int drain);
TSM_API void tsm_pool_free(tsm_pool* pool); /* closes it first, without draining */

/* ---- streams by key, 1 to 256 bytes. TSM_BUSY: the stream has unfinished requests. */

/* Sets the stream to a saved state, which is checked as in tsm_stream_load. */
TSM_API tsm_status tsm_pool_put(tsm_pool* pool, const void* key, size_t key_bytes, const void* blob,
                                size_t blob_bytes);
/* Like tsm_stream_save. */
TSM_API tsm_status tsm_pool_save(tsm_pool* pool, const void* key, size_t key_bytes, void* buffer,
                                 size_t room, size_t* bytes);
TSM_API tsm_status tsm_pool_has(tsm_pool* pool, const void* key, size_t key_bytes, int* known);
TSM_API tsm_status tsm_pool_drop(tsm_pool* pool, const void* key, size_t key_bytes);
TSM_API tsm_status tsm_pool_reset(tsm_pool* pool, const void* key, size_t key_bytes);
/* new_key must not be in the pool yet. */
TSM_API tsm_status tsm_pool_fork(tsm_pool* pool, const void* key, size_t key_bytes,
                                 const void* new_key, size_t new_key_bytes);
TSM_API tsm_status tsm_pool_get_position(tsm_pool* pool, const void* key, size_t key_bytes,
                                         int64_t* steps);

/* ---- requests */

typedef struct tsm_pool_terms {
  size_t size;      /* sizeof(tsm_pool_terms) */
  const void* user; /* who sent the request, at most 256 bytes; null: anonymous */
  size_t user_bytes;
  double timeout;                /* seconds from now, then TSM_DEADLINE; 0: none */
  int32_t priority;              /* 0 to 3, higher goes first */
  int32_t save;                  /* 1: the last event carries the state after the last step */
  int64_t expected_position;     /* that the stream must have when the request begins */
  int32_t has_expected_position; /* 1: checked, a mismatch is TSM_BAD_STATE */
} tsm_pool_terms;
#define TSM_POOL_TERMS_INIT {sizeof(tsm_pool_terms), 0, 0, 0, 0, 0, 0, 0}

typedef enum tsm_pool_logits {
  TSM_POOL_NO_LOGITS = 0,
  TSM_POOL_LAST_LOGITS = 1, /* [V] */
  TSM_POOL_ALL_LOGITS = 2   /* [T, V] */
} tsm_pool_logits;

/* Like tsm_chunk, but without output buffers. */
typedef struct tsm_pool_input {
  size_t size;        /* sizeof(tsm_pool_input) */
  const void* tokens; /* [T] of token_type; exactly one of tokens and values if T > 0 */
  const float* values;
  int64_t T;
  const float* dt;
  int32_t token_type; /* a tsm_token_type */
  int32_t logits;     /* a tsm_pool_logits */
  int32_t log_probs;  /* 1: wanted */
} tsm_pool_input;
#define TSM_POOL_INPUT_INIT {sizeof(tsm_pool_input), 0, 0, 0, 0, TSM_INT64, TSM_POOL_NO_LOGITS, 0}

/* terms: null for TSM_POOL_TERMS_INIT. The events of the request carry *ticket. */
TSM_API tsm_status tsm_pool_feed(tsm_pool* pool, const void* key, size_t key_bytes,
                                 const tsm_pool_input* input, const tsm_pool_terms* terms,
                                 uint64_t* ticket);

typedef struct tsm_pool_draw {
  size_t size;                  /* sizeof(tsm_pool_draw) */
  int64_t n;                    /* tokens, at most */
  const tsm_sampling* sampling; /* null for TSM_SAMPLING_INIT */
  const int64_t* stop;          /* tokens that end the generation; they are fed as well */
  size_t stop_count;
  int32_t progress; /* 1: events report tokens as they are drawn */
} tsm_pool_draw;
#define TSM_POOL_DRAW_INIT {sizeof(tsm_pool_draw), 0, 0, 0, 0, 0}

/* Draws the same tokens as tsm_stream_generate. */
TSM_API tsm_status tsm_pool_generate(tsm_pool* pool, const void* key, size_t key_bytes,
                                     const tsm_pool_draw* draw, const tsm_pool_terms* terms,
                                     uint64_t* ticket);

/* Ends a request. Its last event has the status TSM_CANCELLED, or TSM_OK if its last step was
 * already running. *cancelled (may be null) is set to 0 if the request had already finished. */
TSM_API tsm_status tsm_pool_cancel(tsm_pool* pool, uint64_t ticket, int* cancelled);

/* Waits until the queue has room. timeout is in seconds; a negative value means forever. *has_room
 * (may be null) is set to 0 if the queue is still full or the pool is closed. */
TSM_API tsm_status tsm_pool_wait_room(tsm_pool* pool, double timeout, int* has_room);

/* ---- events */

typedef enum tsm_pool_event_kind { TSM_POOL_PROGRESS = 0, TSM_POOL_DONE = 1 } tsm_pool_event_kind;

typedef struct tsm_pool_event {
  size_t size; /* in: sizeof(tsm_pool_event); fields past it are not written */
  uint64_t ticket;
  int32_t kind;          /* a tsm_pool_event_kind */
  int32_t status;        /* a tsm_status: how the request ended */
  const char* message;   /* as from tsm_last_error; "" if no error */
  int64_t position;      /* of the stream, in steps */
  const int64_t* tokens; /* of a generation. Progress: the new ones, possibly of several steps.
                            Done: all of them */
  size_t token_count;
  const float* logits; /* null: not requested; the same below */
  size_t logit_count;  /* floats: V, or T * V */
  const float* log_probs;
  size_t log_prob_count;
  const void* blob;
  size_t blob_bytes;
  void* owner; /* private */
} tsm_pool_event;
#define TSM_POOL_EVENT_INIT {sizeof(tsm_pool_event), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Waits for an event, then takes up to `capacity` of them. timeout is in seconds: 0 does not
 * wait, a negative value waits forever. *count is set to the number of events. With a negative
 * timeout, 0 means that the pool is closed and all events were taken. events[0].size applies to all
 * elements. The pointers in the events stay valid until tsm_pool_release, which must precede
 * tsm_pool_free. */
TSM_API tsm_status tsm_pool_take(tsm_pool* pool, tsm_pool_event* events, size_t capacity,
                                 double timeout, size_t* count);
TSM_API tsm_status tsm_pool_release(tsm_pool* pool, tsm_pool_event* events, size_t count);

/* A file descriptor that is readable while events are waiting, for poll, epoll and event loops. Do
 * not read from it. -1 if pool is null. */
TSM_API int tsm_pool_fileno(const tsm_pool* pool);

typedef struct tsm_pool_stats {
  size_t size;      /* in: sizeof(tsm_pool_stats); fields past it are not written */
  int64_t requests; /* accepted */
  int64_t refused;  /* TSM_FULL */
  int64_t finished, failed, cancelled, deadline_misses;
  int64_t fed_tokens, generated_tokens;
  int64_t queue, events; /* now: unfinished or untaken requests, and those with an event waiting */
  int64_t streams;       /* now in memory */
  int64_t spilled, dropped;
  int64_t batches;         /* steps of the scheduler */
  int64_t batch_sizes[16]; /* those of 2^i to 2^(i+1) - 1 requests */
} tsm_pool_stats;
#define TSM_POOL_STATS_INIT {sizeof(tsm_pool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}

TSM_API tsm_status tsm_pool_get_stats(tsm_pool* pool, tsm_pool_stats* stats);

#ifdef __cplusplus
}
#endif
#endif
