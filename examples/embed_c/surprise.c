/* How surprised is the model by each token? Reads tokens (numbers) from stdin, prints the
 * surprisal of each in bits, and keeps the state in a file, so that the next run continues there:
 *
 *   surprise model.tsm state.bin < tokens.txt
 */
#define _POSIX_C_SOURCE 200112L /* fileno, fsync */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tsm/tsm.h>
#include <unistd.h>

enum { CHUNK = 64 };

static int failed(const char* what) {
  fprintf(stderr, "surprise: %s: %s\n", what, tsm_last_error());
  return 1;
}

static int failed_file(const char* path) {
  fprintf(stderr, "surprise: %s: %s\n", path, strerror(errno));
  return 1;
}

/* Continues from the file if it exists. */
static int restore(tsm_stream* stream, const char* path) {
  size_t bytes = 0, got;
  unsigned char* blob;
  int status = 0;
  FILE* file = fopen(path, "rb");
  if (!file) return errno == ENOENT ? 0 : failed_file(path);
  if (tsm_stream_save(stream, NULL, 0, &bytes) != TSM_OK) {
    fclose(file);
    return failed("state");
  }
  /* One byte more than a state: a longer file is not a state, and the library will report it. */
  blob = malloc(bytes + 1);
  got = blob ? fread(blob, 1, bytes + 1, file) : 0;
  fclose(file);
  if (!blob || tsm_stream_load(stream, blob, got) != TSM_OK) status = failed(path);
  free(blob);
  return status;
}

/* Writes a new file, syncs it to the disk and renames it over the old one, so that there is
 * always a complete file. */
static int save(const tsm_stream* stream, const char* path) {
  size_t bytes = 0;
  int status = 1;
  char name[4096];
  unsigned char* blob;
  FILE* file;
  if (snprintf(name, sizeof name, "%s.new", path) >= (int)sizeof name) {
    fprintf(stderr, "surprise: the name of the state file is too long\n");
    return 1;
  }
  if (tsm_stream_save(stream, NULL, 0, &bytes) != TSM_OK) return failed("state");
  blob = malloc(bytes);
  if (!blob || tsm_stream_save(stream, blob, bytes, &bytes) != TSM_OK) {
    free(blob);
    return failed("state");
  }
  file = fopen(name, "wb");
  if (file) {
    const int wrote =
        fwrite(blob, 1, bytes, file) == bytes && fflush(file) == 0 && fsync(fileno(file)) == 0;
    status = fclose(file) == 0 && wrote && rename(name, path) == 0 ? 0 : 1;
  }
  if (status != 0) failed_file(path);
  free(blob);
  return status;
}

/* Scores the tokens on stdin, in chunks. */
static int run(tsm_stream* stream) {
  int64_t tokens[CHUNK];
  float log_probs[CHUNK];
  long long number;
  int count = 0, more = 1, i;
  while (more) {
    more = scanf("%lld", &number) == 1;
    if (more) tokens[count++] = number;
    if (count < CHUNK && more) continue;
    if (tsm_stream_score(stream, tokens, count, NULL, log_probs) != TSM_OK) return failed("tokens");
    for (i = 0; i < count; ++i)
      printf("%lld %.4f\n", (long long)tokens[i], -log_probs[i] / log(2.0));
    count = 0;
  }
  if (feof(stdin)) return 0;
  fprintf(stderr, "surprise: stdin: not a number\n");
  return 1;
}

int main(int argc, char** argv) {
  tsm_model* model = NULL;
  tsm_stream* stream = NULL;
  const char* path = argc > 2 ? argv[2] : NULL;
  int status;
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: surprise MODEL [STATE] < TOKENS\n");
    return 2;
  }
  if (tsm_model_load(argv[1], NULL, &model) != TSM_OK) return failed(argv[1]);
  status = tsm_stream_create(model, &stream) == TSM_OK ? 0 : failed("stream");
  tsm_model_free(model); /* the stream keeps what it needs */
  if (status == 0 && path) status = restore(stream, path);
  if (status == 0) status = run(stream);
  if (status == 0 && path) status = save(stream, path);
  tsm_stream_free(stream);
  return status;
}
