/* tsm: many streams behind one queue. C99, over tsm.h, whose rules hold here, too.
 *
 * A pool keeps streams by key and computes the requests of all users together, step by step, on a
 * thread of its own: streams join and leave between any two steps. On the CPU its results are those
 * of a lone stream, to the bit.
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
 *   the order of their arrival. What is asked for is copied.
 * - Users have equal shares of the steps, however many requests they queue. A request of many steps
 *   runs in short pieces, so that it does not hold short ones back.
 * - A request that fails, is cancelled or misses its deadline leaves its stream as it was. Only a
 *   generation with progress stays where it stands: its last event has the tokens that were drawn
 *   and fed.
 * - What cannot be accepted now is refused at once: TSM_FULL.
 * - All functions may be called by any thread, but tsm_pool_free: when nobody uses the pool.
 * - In a child made by fork() a pool of the parent can only be freed, which frees no memory there;
 *   all else is TSM_CLOSED.
 */
#ifndef TSM_POOL_H
#define TSM_POOL_H

#include "tsm/tsm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsm_pool tsm_pool;

/* A state that makes room for another stream: stored when this returns 0. Anything else refuses the
 * call that needs the room (TSM_FULL), and the stream stays. It is called by the thread that makes
 * that call, and may call the pool. */
typedef int (*tsm_pool_spill)(void* context, const void* key, size_t key_bytes, const void* blob,
                              size_t blob_bytes, int64_t position);

typedef struct tsm_pool_options {
  size_t size;            /* sizeof(tsm_pool_options) */
  int64_t max_queue;      /* requests from their acceptance until their last event was taken */
  int64_t max_streams;    /* in memory. One more takes the place of the idle one that was used least
                             recently and was saved since, or is spilled; else: TSM_FULL */
  int64_t max_batch;      /* requests of one step */
  int64_t prefill_steps;  /* of one request in one step */
  int64_t prefill_budget; /* of all requests in one step that have more than one */
  tsm_pool_spill spill;   /* null: none */
  void* context;          /* of spill */
} tsm_pool_options;
#define TSM_POOL_OPTIONS_INIT {sizeof(tsm_pool_options), 4096, 65536, 64, 8, 128, 0, 0}

/* options: null for TSM_POOL_OPTIONS_INIT. The pool keeps what it needs of the model. */
TSM_API tsm_status tsm_pool_create(const tsm_model* model, const tsm_pool_options* options,
                                   tsm_pool** pool);
/* No more requests (TSM_CLOSED). drain: those that are there are finished; else they end with
 * TSM_CLOSED. Returns when that is done; events can still be taken, and states saved. */
TSM_API tsm_status tsm_pool_close(tsm_pool* pool, int drain);
TSM_API void tsm_pool_free(tsm_pool* pool); /* closes it first, without draining */

/* ---- streams by key, 1 to 256 bytes. A stream with unfinished requests is TSM_BUSY. */

/* The stream stands where a saved state does, which is checked as by tsm_stream_load. */
TSM_API tsm_status tsm_pool_put(tsm_pool* pool, const void* key, size_t key_bytes, const void* blob,
                                size_t blob_bytes);
/* As tsm_stream_save. */
TSM_API tsm_status tsm_pool_save(tsm_pool* pool, const void* key, size_t key_bytes, void* buffer,
                                 size_t room, size_t* bytes);
TSM_API tsm_status tsm_pool_has(tsm_pool* pool, const void* key, size_t key_bytes, int* known);
TSM_API tsm_status tsm_pool_drop(tsm_pool* pool, const void* key, size_t key_bytes);
TSM_API tsm_status tsm_pool_reset(tsm_pool* pool, const void* key, size_t key_bytes);
/* new_key: unknown. */
TSM_API tsm_status tsm_pool_fork(tsm_pool* pool, const void* key, size_t key_bytes,
                                 const void* new_key, size_t new_key_bytes);
TSM_API tsm_status tsm_pool_get_position(tsm_pool* pool, const void* key, size_t key_bytes,
                                         int64_t* steps);

/* ---- requests */

typedef struct tsm_pool_terms {
  size_t size;      /* sizeof(tsm_pool_terms) */
  const void* user; /* whose request it is, at most 256 bytes; null: nobody's in particular */
  size_t user_bytes;
  double timeout;                /* seconds from now: TSM_DEADLINE after that; 0: none */
  int32_t priority;              /* 0 to 3, higher goes first */
  int32_t save;                  /* 1: the last event has the state right after the last step */
  int64_t expected_position;     /* where the stream must stand when the request begins, else it */
  int32_t has_expected_position; /* fails with TSM_BAD_STATE; 1: this is checked */
} tsm_pool_terms;
#define TSM_POOL_TERMS_INIT {sizeof(tsm_pool_terms), 0, 0, 0, 0, 0, 0, 0}

typedef enum tsm_pool_logits {
  TSM_POOL_NO_LOGITS = 0,
  TSM_POOL_LAST_LOGITS = 1, /* [V] */
  TSM_POOL_ALL_LOGITS = 2   /* [T, V] */
} tsm_pool_logits;

/* As tsm_chunk, without memory for the outputs. */
typedef struct tsm_pool_input {
  size_t size;        /* sizeof(tsm_pool_input) */
  const void* tokens; /* [T] of token_type; exactly one of tokens and values where T > 0 */
  const float* values;
  int64_t T;
  const float* dt;
  int32_t token_type; /* a tsm_token_type */
  int32_t logits;     /* a tsm_pool_logits */
  int32_t log_probs;  /* 1: wanted */
} tsm_pool_input;
#define TSM_POOL_INPUT_INIT {sizeof(tsm_pool_input), 0, 0, 0, 0, TSM_INT64, TSM_POOL_NO_LOGITS, 0}

/* terms: null for TSM_POOL_TERMS_INIT. *ticket then stands in the request's events. */
TSM_API tsm_status tsm_pool_feed(tsm_pool* pool, const void* key, size_t key_bytes,
                                 const tsm_pool_input* input, const tsm_pool_terms* terms,
                                 uint64_t* ticket);

typedef struct tsm_pool_draw {
  size_t size;                  /* sizeof(tsm_pool_draw) */
  int64_t n;                    /* tokens, at most */
  const tsm_sampling* sampling; /* null for TSM_SAMPLING_INIT */
  const int64_t* stop;          /* tokens that end it; such a token is fed, too */
  size_t stop_count;
  int32_t progress; /* 1: events tell of tokens as they come */
} tsm_pool_draw;
#define TSM_POOL_DRAW_INIT {sizeof(tsm_pool_draw), 0, 0, 0, 0, 0}

/* The tokens are those of tsm_stream_generate. */
TSM_API tsm_status tsm_pool_generate(tsm_pool* pool, const void* key, size_t key_bytes,
                                     const tsm_pool_draw* draw, const tsm_pool_terms* terms,
                                     uint64_t* ticket);

/* Ends a request: its last event has the status TSM_CANCELLED, or TSM_OK where it was in its last
 * step. *cancelled (may be null): 0 where it was finished before. */
TSM_API tsm_status tsm_pool_cancel(tsm_pool* pool, uint64_t ticket, int* cancelled);

/* Waits until the queue is not full; timeout in seconds, below 0: for ever. *has_room (may be
 * null): 0 where it still is, or the pool is closed. */
TSM_API tsm_status tsm_pool_wait_room(tsm_pool* pool, double timeout, int* has_room);

/* ---- events */

typedef enum tsm_pool_event_kind { TSM_POOL_PROGRESS = 0, TSM_POOL_DONE = 1 } tsm_pool_event_kind;

typedef struct tsm_pool_event {
  size_t size; /* in: sizeof(tsm_pool_event); fields past it are not written */
  uint64_t ticket;
  int32_t kind;          /* a tsm_pool_event_kind */
  int32_t status;        /* a tsm_status: how the request ended */
  const char* message;   /* as tsm_last_error; "" */
  int64_t position;      /* of the stream, in steps */
  const int64_t* tokens; /* of a generation. Progress: the new ones, maybe of several steps. Done:
                            all of them */
  size_t token_count;
  const float* logits; /* null: not asked for; here and below */
  size_t logit_count;  /* floats: V, or T * V */
  const float* log_probs;
  size_t log_prob_count;
  const void* blob;
  size_t blob_bytes;
  void* owner; /* the pool's */
} tsm_pool_event;
#define TSM_POOL_EVENT_INIT {sizeof(tsm_pool_event), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Takes up to `capacity` events, waiting for the first one; timeout in seconds, 0: not at all,
 * below 0: for ever. *count becomes how many; 0 after a wait for ever: the pool is closed, and all
 * was taken. events[0].size is that of all. What their pointers give is theirs until
 * tsm_pool_release, which must come before tsm_pool_free. */
TSM_API tsm_status tsm_pool_take(tsm_pool* pool, tsm_pool_event* events, size_t capacity,
                                 double timeout, size_t* count);
TSM_API tsm_status tsm_pool_release(tsm_pool* pool, tsm_pool_event* events, size_t count);

/* A file descriptor that is readable while events wait, for poll, epoll and event loops; -1: null
 * was given. Only wait on it. */
TSM_API int tsm_pool_fileno(const tsm_pool* pool);

typedef struct tsm_pool_stats {
  size_t size;      /* in: sizeof(tsm_pool_stats); fields past it are not written */
  int64_t requests; /* accepted */
  int64_t refused;  /* TSM_FULL */
  int64_t finished, failed, cancelled, deadline_misses;
  int64_t fed_tokens, generated_tokens;
  int64_t queue, events; /* now: not taken, and with an event that waits */
  int64_t streams;       /* now in memory */
  int64_t spilled, dropped;
  int64_t batches;         /* steps of all */
  int64_t batch_sizes[16]; /* those of 2^i to 2^(i+1) - 1 requests */
} tsm_pool_stats;
#define TSM_POOL_STATS_INIT {sizeof(tsm_pool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}

TSM_API tsm_status tsm_pool_get_stats(tsm_pool* pool, tsm_pool_stats* stats);

#ifdef __cplusplus
}
#endif
#endif
