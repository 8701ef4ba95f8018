/* tsm: runs recurrent networks on endless streams, embedded in any program. C99.
 *
 * A model is loaded once from a .tsm file, is immutable, and may be used by any number of threads
 * at once. A stream is one endless sequence: its states and its position. It may be used by one
 * thread at a time; a second call on a busy stream is refused with TSM_BUSY.
 *
 *   tsm_model* model;
 *   tsm_stream* stream;
 *   if (tsm_model_load("model.tsm", NULL, &model) != TSM_OK) fail(tsm_last_error());
 *   if (tsm_stream_create(model, &stream) != TSM_OK) fail(tsm_last_error());
 *   tsm_model_free(model);                     // the stream keeps the model alive
 *   tsm_stream_score(stream, tokens, count, NULL, log_probs);
 *   tsm_stream_free(stream);
 *
 * Rules for every function:
 * - A function that can fail returns a tsm_status. On failure the stream is unchanged, the contents
 *   of the outputs are undefined, and tsm_last_error() names the argument, its value and the
 *   accepted values.
 * - A null pointer for a required argument is refused. Freeing null does nothing.
 * - The library never prints, throws or ends the process.
 * - After the first calls on a thread, feeding, scoring and generating allocate no memory.
 * - Results depend neither on how a sequence is cut into chunks nor on which streams are fed
 *   together.
 * - Memory passed to a call must not change while the call runs. If another thread changes it
 *   anyway, the results are undefined, but nothing outside the model is read.
 * - A struct begins with `size`, so that it can grow: set this to sizeof, or start from the _INIT
 *   macro beside it. docs/abi.md says what may change between versions.
 * - A loaded model does not need its file. Do not truncate a file while tsm_model_load reads it:
 *   that ends the process with SIGBUS. Replacing a file by rename is always safe.
 * - In a child process created by fork(), the models and streams of the parent can be used and
 *   freed. A stream that was inside a call of another thread stays TSM_BUSY in the child. Calls in
 *   the child run on the calling thread only, whatever `threads` is. A model on a GPU can be
 *   neither used nor freed there, because CUDA does not survive a fork.
 *
 * Dimensions: T steps, I width of an input row, V width of the outputs (logits, numbers).
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
  TSM_BAD_STATE = 3,        /* a saved state that is damaged or of another model, or one that a feed
                               would have made infinite or NaN */
  TSM_BUSY = 4,             /* the stream is inside another call */
  TSM_OUT_OF_MEMORY = 5,
  TSM_INTERNAL = 6,  /* a bug in tsm itself, or a device that failed */
  TSM_CANCELLED = 7, /* the call was told to end (tsm_cancel) */
  TSM_FULL = 8,      /* a queue or a table of tsm/pool.h has no room; here and below */
  TSM_DEADLINE = 9,
  TSM_CLOSED = 10
} tsm_status;

/* The message of the last call that failed on this thread; "" if none has failed, or if there was
 * no memory for the message. Valid until the next call fails on this thread. */
TSM_API const char* tsm_last_error(void);

/* The index of the chunk or generation that caused this error in tsm_model_feed_many or
 * tsm_model_generate_many; -1 if no single one did. */
TSM_API int64_t tsm_last_error_chunk(void);

/* "ok", "invalid argument", "bad file", ... */
TSM_API const char* tsm_status_name(int status);

/* The version of the library, such as "0.1.0". */
TSM_API const char* tsm_version(void);

/* The version of the binary interface: that of this header, and that of the library. A program that
 * loads the library with dlopen should compare the two; for a linked program the library's name
 * ensures that they agree. */
#define TSM_ABI_VERSION 2
TSM_API int tsm_abi_version(void);

/* ---- model ------------------------------------------------------------------------------------
 */

typedef struct tsm_model tsm_model;
typedef struct tsm_stream tsm_stream;

/* How weights are stored in memory. States and sums are always float32. */
typedef enum tsm_dtype { TSM_FLOAT32 = 0, TSM_BFLOAT16 = 1, TSM_INT8 = 2 } tsm_dtype;

/* Where a model runs. TSM_CUDA: on the first CUDA device (see CUDA_VISIBLE_DEVICES), if the library
 * was built with CUDA; weights and states are kept on the device. Results equal those of the CPU up
 * to rounding, and saved states can be loaded on either. */
typedef enum tsm_device { TSM_CPU = 0, TSM_CUDA = 1 } tsm_device;

typedef enum tsm_family {
  TSM_LANGUAGE_MODEL = 0, /* logits of the next token, after each step */
  TSM_CLASSIFIER = 1,     /* logits of the classes after each step */
  TSM_TAGGER = 2          /* one output row per step */
} tsm_family;

/* `size` lets the struct grow: a newer library reads only the fields that an older program
 * knows. */
typedef struct tsm_load_options {
  size_t size;     /* sizeof(tsm_load_options) */
  int32_t dtype;   /* a tsm_dtype */
  int32_t threads; /* per call: the caller and threads - 1 workers; 0: one per core, at most 8, if
                      a layer has 512 units or more, else 1 */
  int32_t device;  /* a tsm_device */
} tsm_load_options;
#define TSM_LOAD_OPTIONS_INIT {sizeof(tsm_load_options), TSM_FLOAT32, 1, TSM_CPU}

/* Reads a .tsm file. options: null for TSM_LOAD_OPTIONS_INIT. */
TSM_API tsm_status tsm_model_load(const char* path, const tsm_load_options* options,
                                  tsm_model** model);

/* Frees the handle. The model's memory is freed with the last of its streams. */
TSM_API void tsm_model_free(tsm_model* model);

typedef struct tsm_model_info {
  size_t size;          /* in: sizeof(tsm_model_info); fields past it are not written */
  int32_t family;       /* a tsm_family */
  int32_t takes_tokens; /* 1: tokens below vocab_size; 0: rows of input_size floats */
  int64_t vocab_size;   /* 0 for float inputs */
  int64_t input_size;   /* I; 0 for tokens */
  int64_t output_size;  /* V */
  int32_t takes_dt;     /* 1: steps may have a duration other than 1 */
  int32_t layers;
  double shortest_dt;   /* 0 if the model takes no dt */
  uint64_t fingerprint; /* of config and weights; a saved state requires the same fingerprint */
  int32_t dtype;        /* a tsm_dtype */
  int32_t threads;
  const char* level; /* instruction set in use: "scalar", "neon", "avx2", ..., "sm_90"; valid as
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
  int32_t states;      /* number of states; for names and widths see tsm_model_get_state_info */
  int32_t interpreted; /* 1: the cell is not compiled in and runs from the program in the file */
} tsm_layer_info;
#define TSM_LAYER_INFO_INIT {sizeof(tsm_layer_info), 0, 0, 0, 0, 0}

/* Strings stay valid as long as the model, here and below. */
TSM_API tsm_status tsm_model_get_layer_info(const tsm_model* model, int32_t layer,
                                            tsm_layer_info* info);

/* Name ("h", "c", "age", "m") and width of a state; either output may be null. */
TSM_API tsm_status tsm_model_get_state_info(const tsm_model* model, int32_t layer, int32_t state,
                                            const char** name, int64_t* width);

/* The file's config as JSON, not null-terminated. */
TSM_API tsm_status tsm_model_get_config(const tsm_model* model, const char** text, size_t* bytes);

/* Extra files stored with the model: "text.dict" (dict.txt), "text.sentencepiece", "text.labels"
 * (names of the classes), "text.targets" (names of the outputs; the model has it if its outputs are
 * numbers, and only then). If the model has no such asset, *data is null and *bytes is 0. */
TSM_API tsm_status tsm_model_get_asset(const tsm_model* model, const char* name, const void** data,
                                       size_t* bytes);

/* Converts text to tokens and back with the dictionary in the model file, as in training. The call
 * fails with TSM_INVALID_ARGUMENT if the file has no dictionary, or if the tokenizer is
 * sentencepiece; in that case pass the asset "text.sentencepiece" to that library.
 *
 * UTF-8 -> tokens: a newline ends a line (it becomes <eos>, if lines have one); the last line needs
 * no newline. A symbol that is not in the dictionary becomes <unk>, or is an error if the
 * dictionary has no <unk>. *count is set to the number of tokens, which is at most `bytes`; with
 * tokens = null nothing else is written. If `room` is smaller than that, the call fails, but *count
 * is still set. */
TSM_API tsm_status tsm_model_encode(const tsm_model* model, const char* text, size_t bytes,
                                    int64_t* tokens, size_t room, size_t* count);

/* Tokens -> UTF-8, not null-terminated. *bytes, room and text = null work as above. */
TSM_API tsm_status tsm_model_decode(const tsm_model* model, const int64_t* tokens, size_t count,
                                    char* text, size_t room, size_t* bytes);

/* ---- stream -----------------------------------------------------------------------------------
 */

/* Creates a stream at position 0; all its states are 0. */
TSM_API tsm_status tsm_stream_create(const tsm_model* model, tsm_stream** stream);
TSM_API void tsm_stream_free(tsm_stream* stream);

/* Returns the stream to position 0. */
TSM_API tsm_status tsm_stream_reset(tsm_stream* stream);

/* Creates a second stream with the same states and position. */
TSM_API tsm_status tsm_stream_fork(const tsm_stream* stream, tsm_stream** copy);

/* The number of steps fed, and the sum of their dt. */
TSM_API tsm_status tsm_stream_get_position(const tsm_stream* stream, int64_t* steps);
TSM_API tsm_status tsm_stream_get_time(const tsm_stream* stream, double* time);

/* Feeds T steps; T = 0 is allowed.
 *   tokens  [T], each in [0, vocab_size)
 *   values  [T, I]
 *   dt      [T], each finite and at least shortest_dt; or null: every step lasts 1
 *   logits  [T, V], or null: not wanted. With last_only != 0 [V], of the last step,
 *           or of the current state if T = 0.
 *   room    how many floats fit at `logits`: at least T * V, or V with last_only. */
TSM_API tsm_status tsm_stream_feed_tokens(tsm_stream* stream, const int64_t* tokens, int64_t T,
                                          const float* dt, float* logits, size_t room,
                                          int last_only);
TSM_API tsm_status tsm_stream_feed_values(tsm_stream* stream, const float* values, int64_t T,
                                          const float* dt, float* logits, size_t room,
                                          int last_only);

/* A flag that tells calls to end early; any thread may set it. Setting it is one atomic store, so
 * it is safe in a signal handler. It stays set until it is cleared. It may be passed to any number
 * of calls at once and must outlive them. */
typedef struct tsm_cancel tsm_cancel;
TSM_API tsm_status tsm_cancel_create(tsm_cancel** cancel);
TSM_API void tsm_cancel_free(tsm_cancel* cancel);
TSM_API void tsm_cancel_set(tsm_cancel* cancel); /* does nothing if null; the same below */
TSM_API void tsm_cancel_clear(tsm_cancel* cancel);
TSM_API int tsm_cancel_is_set(const tsm_cancel* cancel);

/* The outcome of one chunk or generation. This struct never grows. */
typedef struct tsm_failure {
  int32_t status;    /* a tsm_status; TSM_OK: no error */
  char message[252]; /* as from tsm_last_error, possibly truncated; "" if no error */
} tsm_failure;

/* Options of tsm_model_feed_many and tsm_model_generate_many. */
typedef struct tsm_call {
  size_t size; /* sizeof(tsm_call) */
  /* May be null. Checked before the call begins and at least every 256 rows (on a GPU: every
   * slice). Once it is set, the call ends with TSM_CANCELLED and all streams are unchanged. */
  const tsm_cancel* cancel;
  /* Null: one bad chunk fails the whole call. Otherwise [count]: a bad chunk is refused alone and
   * its stream is unchanged; the others are fed, and the call returns TSM_OK. Errors that belong to
   * no chunk (a null model, TSM_OUT_OF_MEMORY, TSM_CANCELLED) are still returned; then no stream
   * has changed, and this array must not be read. */
  tsm_failure* failures;
} tsm_call;
#define TSM_CALL_INIT {sizeof(tsm_call), 0, 0}

typedef enum tsm_token_type { TSM_INT64 = 0, TSM_INT32 = 1, TSM_UINT16 = 2 } tsm_token_type;

/* The input of one stream in tsm_model_feed_many; fields as above. All chunks of a call must have
 * the same `size`. */
typedef struct tsm_chunk {
  size_t size; /* sizeof(tsm_chunk) */
  tsm_stream* stream;
  const void* tokens; /* [T] of token_type; exactly one of tokens and values if T > 0 */
  const float* values;
  int64_t T;
  const float* dt;
  float* logits;
  size_t room;
  float* log_probs; /* [T], as from tsm_stream_score; null: not wanted */
  int32_t last_only;
  int32_t token_type; /* a tsm_token_type */
} tsm_chunk;
#define TSM_CHUNK_INIT {sizeof(tsm_chunk), 0, 0, 0, 0, 0, 0, 0, 0, 0, TSM_INT64}

/* Feeds many streams of this model at once, with chunks of any length; the weights are read once
 * for all of them. Every chunk is checked before the first one is fed. It is an error to pass the
 * same stream twice, or outputs (logits, log_probs) that overlap each other or the input of their
 * own chunk. They must not overlap the input of another chunk either, but that is not checked.
 * call: null for TSM_CALL_INIT. */
TSM_API tsm_status tsm_model_feed_many(const tsm_model* model, const tsm_chunk* chunks,
                                       size_t count, const tsm_call* call);

/* Feeds one chunk to its stream. Does what tsm_stream_feed_tokens, tsm_stream_feed_values and
 * tsm_stream_score do, but takes tokens of any type and can return logits and log_probs together.
 * `cancel` may be null. */
TSM_API tsm_status tsm_stream_feed_chunk(const tsm_chunk* chunk, const tsm_cancel* cancel);

/* Feeds the tokens of a language model; log_probs[i] = log p(token i | all before it), starting
 * from the current state. */
TSM_API tsm_status tsm_stream_score(tsm_stream* stream, const int64_t* tokens, int64_t T,
                                    const float* dt, float* log_probs);

typedef struct tsm_sampling {
  size_t size;        /* sizeof(tsm_sampling) */
  double temperature; /* 0: always the most probable */
  int64_t top_k;      /* 0: all */
  double top_p;       /* 1: all */
  uint64_t seed;      /* determines the draws together with the stream's position */
  double dt;          /* duration of each step, if the model takes dt */
} tsm_sampling;
#define TSM_SAMPLING_INIT {sizeof(tsm_sampling), 1.0, 0, 1.0, 0, 1.0}

/* Draws n tokens from a language model and feeds each one before drawing the next. sampling: null
 * for TSM_SAMPLING_INIT. Afterwards the stream has been fed all n tokens. Drawing n and then m
 * tokens gives the same tokens as drawing n + m. */
TSM_API tsm_status tsm_stream_generate(tsm_stream* stream, int64_t n, const tsm_sampling* sampling,
                                       int64_t* tokens);

/* What one stream generates in tsm_model_generate_many. All elements of a call must have the same
 * `size`. */
typedef struct tsm_generation {
  size_t size; /* sizeof(tsm_generation) */
  tsm_stream* stream;
  int64_t n;
  int64_t* tokens;              /* [n] */
  const tsm_sampling* sampling; /* its own; null for TSM_SAMPLING_INIT */
} tsm_generation;
#define TSM_GENERATION_INIT {sizeof(tsm_generation), 0, 0, 0, 0}

/* Draws tokens for many streams of this model at once, each with its own n and sampling. Each step
 * draws one token per stream, then feeds all of them together. On the CPU the tokens are exactly
 * those of tsm_stream_generate on each stream alone; on a GPU rounding may change
 * them. Errors and cancellation work as in tsm_model_feed_many. */
TSM_API tsm_status tsm_model_generate_many(const tsm_model* model,
                                           const tsm_generation* generations, size_t count,
                                           const tsm_call* call);

/* The same for one stream. */
TSM_API tsm_status tsm_stream_generate_tokens(const tsm_generation* generation,
                                              const tsm_cancel* cancel);

/* Copies a state of a layer: as many floats as its width, which must fit in `room`. */
TSM_API tsm_status tsm_stream_get_state(const tsm_stream* stream, int32_t layer, int32_t state,
                                        float* values, size_t room);

/* Serializes the stream (states, position, time) into bytes that can be stored or moved to another
 * process or machine. *bytes is set to the size needed, which is the same for all streams of a
 * model; with buffer = null nothing else is written. If the buffer is too small the call fails, but
 * *bytes is still set. */
TSM_API tsm_status tsm_stream_save(const tsm_stream* stream, void* buffer, size_t room,
                                   size_t* bytes);

/* Restores a stream from such bytes. Their format, checksum and model fingerprint are checked; a
 * mismatch is TSM_BAD_STATE. */
TSM_API tsm_status tsm_stream_load(tsm_stream* stream, const void* buffer, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
