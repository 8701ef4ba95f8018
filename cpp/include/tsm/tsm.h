/* tsm: streams of recurrent networks, to embed in any program. C99.
 *
 * A model is loaded once from a .tsm file, is immutable, and may be used by any number of threads
 * at once. A stream is one endless sequence: a few states, and how far it has come. It belongs to
 * one thread at a time; a call on a stream that is inside another call is refused with TSM_BUSY.
 *
 *   tsm_model* model;
 *   tsm_stream* stream;
 *   if (tsm_model_load("model.tsm", NULL, &model) != TSM_OK) fail(tsm_last_error());
 *   if (tsm_stream_create(model, &stream) != TSM_OK) fail(tsm_last_error());
 *   tsm_model_free(model);                     // the stream keeps what it needs
 *   tsm_stream_score(stream, tokens, count, NULL, log_probs);
 *   tsm_stream_free(stream);
 *
 * Rules for every function:
 * - A function that can fail returns a tsm_status. On failure the stream is as it was, what the
 *   outputs hold is undefined, and tsm_last_error() says which argument was wrong, its value, and
 *   what is accepted.
 * - A null pointer where one is needed is refused, not followed. Freeing null does nothing.
 * - Nothing is printed, no exception comes out, the process is never ended.
 * - After the first calls on a thread, feeding, scoring and generating allocate no memory.
 * - Results do not depend on how a sequence is cut into chunks, nor on the streams fed together.
 * - What a pointer gives must not change during the call. Where another thread changes it all the
 *   same, what is computed is undefined, but nothing outside the model is read.
 * - A struct begins with its size, so that it can grow: set it to sizeof, or start from the _INIT
 *   beside it. docs/abi.md says what may change between versions.
 * - A loaded model does not need its file. While tsm_model_load reads one, nobody may cut it short:
 *   that would end the process with SIGBUS. Replace a file by rename, which is safe at any time.
 * - In a child made by fork() every model and stream of the parent can be used and freed, but for
 *   what another thread of the parent was doing at that moment: a stream inside a call stays
 *   TSM_BUSY in the child. Calls there run on the calling thread alone, whatever `threads` is.
 *   A model on a GPU can be neither used nor freed in a child: CUDA does not survive a fork.
 *
 * Letters: T steps, I width of an input row, V width of the logits (vocabulary or classes).
 */
#ifndef TSM_TSM_H
#define TSM_TSM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TSM_API __attribute__((visibility("default")))
#else
#define TSM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status -----------------------------------------------------------------------------------
 */

typedef enum tsm_status {
  TSM_OK = 0,
  TSM_INVALID_ARGUMENT = 1, /* a value, a size or a null pointer */
  TSM_BAD_FILE = 2,         /* a model file that is missing, damaged or not understood */
  TSM_BAD_STATE = 3,        /* a saved state that is damaged or another model's, or one that a feed
                               would have made infinite or NaN */
  TSM_BUSY = 4,             /* the stream is inside another call */
  TSM_OUT_OF_MEMORY = 5,
  TSM_INTERNAL = 6,  /* a mistake in tsm itself, or a device that failed */
  TSM_CANCELLED = 7, /* the call was told to end (tsm_cancel) */
  TSM_FULL = 8,      /* a queue or a table of tsm/pool.h has no room; here and below */
  TSM_DEADLINE = 9,
  TSM_CLOSED = 10
} tsm_status;

/* What went wrong in the last call on this thread that failed; "" before the first, and where there
 * was no memory to keep it. Valid until the next failing call on this thread. */
TSM_API const char* tsm_last_error(void);

/* Which chunk or generation of tsm_model_feed_many or tsm_model_generate_many that error was about;
 * -1 where it was about no single one. */
TSM_API int64_t tsm_last_error_chunk(void);

/* "ok", "invalid argument", "bad file", ... */
TSM_API const char* tsm_status_name(int status);

/* Of the library, "0.1.0". */
TSM_API const char* tsm_version(void);

/* The binary interface: of this header, and of the library. A program that loads the library by
 * hand (dlopen) compares the two; others are kept apart by the library's name. */
#define TSM_ABI_VERSION 2
TSM_API int tsm_abi_version(void);

/* ---- model ------------------------------------------------------------------------------------
 */

typedef struct tsm_model tsm_model;
typedef struct tsm_stream tsm_stream;

/* How weights are kept in memory. States and sums are float32 with each. */
typedef enum tsm_dtype { TSM_FLOAT32 = 0, TSM_BFLOAT16 = 1, TSM_INT8 = 2 } tsm_dtype;

/* Where a model computes. TSM_CUDA: the first CUDA device (CUDA_VISIBLE_DEVICES chooses), where the
 * library was built with CUDA; weights and states are kept there. Results are then the CPU's within
 * rounding, and saved states fit both. */
typedef enum tsm_device { TSM_CPU = 0, TSM_CUDA = 1 } tsm_device;

typedef enum tsm_family {
  TSM_LANGUAGE_MODEL = 0, /* logits of the next token, each step */
  TSM_CLASSIFIER = 1,     /* logits of the classes, as they stand after each step */
  TSM_TAGGER = 2          /* one output row per step */
} tsm_family;

/* `size` lets the struct grow: a newer library reads an older program's struct as it was. */
typedef struct tsm_load_options {
  size_t size;     /* sizeof(tsm_load_options) */
  int32_t dtype;   /* a tsm_dtype */
  int32_t threads; /* of one call: the caller and threads - 1 workers; at least 1 */
  int32_t device;  /* a tsm_device */
} tsm_load_options;
#define TSM_LOAD_OPTIONS_INIT {sizeof(tsm_load_options), TSM_FLOAT32, 1, TSM_CPU}

/* Reads a .tsm file. options: null for TSM_LOAD_OPTIONS_INIT. */
TSM_API tsm_status tsm_model_load(const char* path, const tsm_load_options* options,
                                  tsm_model** model);

/* Gives the handle back. Streams of the model go on living, and the model's memory with them. */
TSM_API void tsm_model_free(tsm_model* model);

typedef struct tsm_model_info {
  size_t size;          /* in: sizeof(tsm_model_info); fields past it are not written */
  int32_t family;       /* a tsm_family */
  int32_t takes_tokens; /* 1: tokens below vocab_size; 0: rows of input_size floats */
  int64_t vocab_size;   /* 0 for float inputs */
  int64_t input_size;   /* I; 0 for tokens */
  int64_t output_size;  /* V */
  int32_t takes_dt;     /* 1: steps may last another time than 1 */
  int32_t layers;
  double shortest_dt;   /* 0 where dt is not taken */
  uint64_t fingerprint; /* of config and weights; a saved state fits models with the same one */
  int32_t dtype;        /* a tsm_dtype */
  int32_t threads;
  const char* level; /* instruction set in use: "scalar", "neon", "avx2", ..., "sm_90"; lives as
                        long as the model */
  int32_t device;    /* a tsm_device */
} tsm_model_info;
#define TSM_MODEL_INFO_INIT \
  {sizeof(tsm_model_info), TSM_LANGUAGE_MODEL, 0, 0, 0, 0, 0, 0, 0, 0, TSM_FLOAT32, 0, 0, TSM_CPU}

TSM_API tsm_status tsm_model_get_info(const tsm_model* model, tsm_model_info* info);

typedef struct tsm_layer_info {
  size_t size; /* in: sizeof(tsm_layer_info); fields past it are not written */
  const char* cell;
  int64_t input_size, hidden_size;
  int32_t states;      /* how many; their names and widths: tsm_model_get_state_info */
  int32_t interpreted; /* 1: the cell is not compiled in and runs from the program in the file */
} tsm_layer_info;
#define TSM_LAYER_INFO_INIT {sizeof(tsm_layer_info), 0, 0, 0, 0, 0}

/* Strings live as long as the model, here and below. */
TSM_API tsm_status tsm_model_get_layer_info(const tsm_model* model, int32_t layer,
                                            tsm_layer_info* info);

/* Name ("h", "c", "age", "m") and width of a state; either output may be null. */
TSM_API tsm_status tsm_model_get_state_info(const tsm_model* model, int32_t layer, int32_t state,
                                            const char** name, int64_t* width);

/* The file's config, JSON; not terminated by a zero. */
TSM_API tsm_status tsm_model_get_config(const tsm_model* model, const char** text, size_t* bytes);

/* Bytes that travel with the model: "text.dict" (dict.txt), "text.sentencepiece". Without such an
 * asset *data is null and *bytes 0. */
TSM_API tsm_status tsm_model_get_asset(const tsm_model* model, const char* name, const void** data,
                                       size_t* bytes);

/* Text as tokens and back, of a model whose file carries its dictionary; the tokens are those that
 * it was trained with. Where it carries none, or the tokenizer is sentencepiece (which needs that
 * library: give it the asset "text.sentencepiece"), the call fails with TSM_INVALID_ARGUMENT.
 *
 * UTF-8 -> tokens: a newline ends a line (the token <eos>, where lines have one), and the last line
 * need not be ended. A symbol that the dictionary does not have is <unk>, or an error where there
 * is no <unk>. *count becomes how many tokens there are, at most `bytes`; with tokens = null that
 * is all. A buffer of fewer than that (`room`) is an error, *count is set all the same. */
TSM_API tsm_status tsm_model_encode(const tsm_model* model, const char* text, size_t bytes,
                                    int64_t* tokens, size_t room, size_t* count);

/* Tokens -> UTF-8, not terminated by a zero. *bytes, room and text = null as above. */
TSM_API tsm_status tsm_model_decode(const tsm_model* model, const int64_t* tokens, size_t count,
                                    char* text, size_t room, size_t* bytes);

/* ---- stream -----------------------------------------------------------------------------------
 */

/* A stream at its beginning: every state 0. */
TSM_API tsm_status tsm_stream_create(const tsm_model* model, tsm_stream** stream);
TSM_API void tsm_stream_free(tsm_stream* stream);

/* Back to the beginning. */
TSM_API tsm_status tsm_stream_reset(tsm_stream* stream);

/* A second stream that stands where this one does. */
TSM_API tsm_status tsm_stream_fork(const tsm_stream* stream, tsm_stream** copy);

/* Steps fed, and the sum of their dt. */
TSM_API tsm_status tsm_stream_get_position(const tsm_stream* stream, int64_t* steps);
TSM_API tsm_status tsm_stream_get_time(const tsm_stream* stream, double* time);

/* Feeds T steps; T = 0 is allowed.
 *   tokens  [T], each in [0, vocab_size)
 *   values  [T, I]
 *   dt      [T], each finite and at least shortest_dt; or null: every step lasts 1
 *   logits  [T, V], or null: not wanted. With last_only != 0 [V], of the last step,
 *           or of the current state where T = 0.
 *   room    how many floats fit at `logits`: at least T * V, or V with last_only. */
TSM_API tsm_status tsm_stream_feed_tokens(tsm_stream* stream, const int64_t* tokens, int64_t T,
                                          const float* dt, float* logits, size_t room,
                                          int last_only);
TSM_API tsm_status tsm_stream_feed_values(tsm_stream* stream, const float* values, int64_t T,
                                          const float* dt, float* logits, size_t room,
                                          int last_only);

/* Tells calls to end early, from any thread. Setting it is one atomic store: safe in a signal
 * handler, too. It stays set until it is cleared, and may serve any number of calls at once; it
 * must live as long as they. */
typedef struct tsm_cancel tsm_cancel;
TSM_API tsm_status tsm_cancel_create(tsm_cancel** cancel);
TSM_API void tsm_cancel_free(tsm_cancel* cancel);
TSM_API void tsm_cancel_set(tsm_cancel* cancel); /* null: does nothing; here and below */
TSM_API void tsm_cancel_clear(tsm_cancel* cancel);
TSM_API int tsm_cancel_is_set(const tsm_cancel* cancel);

/* What became of one chunk or generation. This struct never grows. */
typedef struct tsm_failure {
  int32_t status;    /* a tsm_status; TSM_OK: it went well */
  char message[252]; /* as tsm_last_error gives it, maybe cut short; "" */
} tsm_failure;

/* How tsm_model_feed_many and tsm_model_generate_many go about it. */
typedef struct tsm_call {
  size_t size; /* sizeof(tsm_call) */
  /* Null, or looked at before the call begins and every at most 256 rows (on a GPU: every slice):
   * once it is set the call ends with TSM_CANCELLED, every stream as before it. */
  const tsm_cancel* cancel;
  /* Null: one bad chunk refuses the whole call. Else [count]: a bad one is refused by
   * itself, its stream as it was; the others are fed, and the call returns TSM_OK. What belongs to
   * no chunk (a null model, TSM_OUT_OF_MEMORY, TSM_CANCELLED) is still returned, and then no stream
   * has moved and nothing may be read here. */
  tsm_failure* failures;
} tsm_call;
#define TSM_CALL_INIT {sizeof(tsm_call), 0, 0}

typedef enum tsm_token_type { TSM_INT64 = 0, TSM_INT32 = 1, TSM_UINT16 = 2 } tsm_token_type;

/* What one stream is fed by tsm_model_feed_many; fields as above. All chunks of a call have the
 * same size. */
typedef struct tsm_chunk {
  size_t size; /* sizeof(tsm_chunk) */
  tsm_stream* stream;
  const void* tokens; /* [T] of token_type; exactly one of tokens and values where T > 0 */
  const float* values;
  int64_t T;
  const float* dt;
  float* logits;
  size_t room;
  float* log_probs; /* [T], as tsm_stream_score gives; null: not wanted */
  int32_t last_only;
  int32_t token_type; /* a tsm_token_type */
} tsm_chunk;
#define TSM_CHUNK_INIT {sizeof(tsm_chunk), 0, 0, 0, 0, 0, 0, 0, 0, 0, TSM_INT64}

/* Feeds many streams of this model at once, chunks of any lengths: the weights are read once for
 * all. Every chunk is checked before the first is fed. The same stream twice is an error, and so
 * are outputs (logits, log_probs) that overlap, or that lie in what their chunk is fed; they must
 * not lie in what another chunk is fed either, which is not looked for. call: null for
 * TSM_CALL_INIT. */
TSM_API tsm_status tsm_model_feed_many(const tsm_model* model, const tsm_chunk* chunks,
                                       size_t count, const tsm_call* call);

/* Feeds one chunk to its stream: what tsm_stream_feed_tokens, tsm_stream_feed_values and
 * tsm_stream_score do, with tokens of any type, logits and log_probs at once, and an end by
 * `cancel`, where that is not null. */
TSM_API tsm_status tsm_stream_feed_chunk(const tsm_chunk* chunk, const tsm_cancel* cancel);

/* Feeds the tokens of a language model; log_probs[i] = log p(token i | all before it), the first
 * from the current state. */
TSM_API tsm_status tsm_stream_score(tsm_stream* stream, const int64_t* tokens, int64_t T,
                                    const float* dt, float* log_probs);

typedef struct tsm_sampling {
  size_t size;        /* sizeof(tsm_sampling) */
  double temperature; /* 0: always the most probable */
  int64_t top_k;      /* 0: all */
  double top_p;       /* 1: all */
  uint64_t seed;      /* with the stream's position it decides what is drawn */
  double dt;          /* how long each step lasts, where the model takes dt */
} tsm_sampling;
#define TSM_SAMPLING_INIT {sizeof(tsm_sampling), 1.0, 0, 1.0, 0, 1.0}

/* Draws n tokens of a language model, feeding each before the next. sampling: null for
 * TSM_SAMPLING_INIT. The stream then stands as if the tokens had been fed; n and then m tokens are
 * the same as n + m. */
TSM_API tsm_status tsm_stream_generate(tsm_stream* stream, int64_t n, const tsm_sampling* sampling,
                                       int64_t* tokens);

/* What one stream generates in tsm_model_generate_many. All of a call have the same size. */
typedef struct tsm_generation {
  size_t size; /* sizeof(tsm_generation) */
  tsm_stream* stream;
  int64_t n;
  int64_t* tokens;              /* [n] */
  const tsm_sampling* sampling; /* its own; null for TSM_SAMPLING_INIT */
} tsm_generation;
#define TSM_GENERATION_INIT {sizeof(tsm_generation), 0, 0, 0, 0}

/* Draws tokens for many streams of this model at once, each with its own n and sampling: in every
 * step one token for each, then all are fed together. On the CPU the tokens are those of
 * tsm_stream_generate on each stream alone, to the bit; on a GPU they may differ where rounding
 * decides. Errors and cancellation as in tsm_model_feed_many. */
TSM_API tsm_status tsm_model_generate_many(const tsm_model* model,
                                           const tsm_generation* generations, size_t count,
                                           const tsm_call* call);

/* The same for one stream. */
TSM_API tsm_status tsm_stream_generate_tokens(const tsm_generation* generation,
                                              const tsm_cancel* cancel);

/* Copies a state of a layer: its width in floats, at most `room`. */
TSM_API tsm_status tsm_stream_get_state(const tsm_stream* stream, int32_t layer, int32_t state,
                                        float* values, size_t room);

/* Writes everything that the stream is (states, position, time) as bytes that can be stored and
 * moved to another process or machine. *bytes becomes what is needed; with buffer = null that is
 * all, and it is the same for every stream of a model. A buffer that is too small is an error,
 * *bytes is set all the same. */
TSM_API tsm_status tsm_stream_save(const tsm_stream* stream, void* buffer, size_t room,
                                   size_t* bytes);

/* Continues from such bytes. They are checked (TSM_BAD_STATE): form, sum, and that they come from a
 * model with the same fingerprint. */
TSM_API tsm_status tsm_stream_load(tsm_stream* stream, const void* buffer, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
