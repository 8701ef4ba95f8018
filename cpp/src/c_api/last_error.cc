// The message of a thread's last failure. It is not `thread_local`: in a library loaded at run time
// such memory is allocated on first use, and the process ends if that fails.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "c_api/guard.h"

namespace tsm::c_api {
namespace {

struct LastError {
  int64_t chunk;
  char text[1016];
};

// A thread's message is freed when the thread ends. If the process has run out of pthread keys, no
// messages are kept.
struct Texts {
  pthread_key_t key{};
  const bool works = pthread_key_create(&key, std::free) == 0;
  ~Texts() {
    if (works) pthread_key_delete(key);
  }
  LastError* get() const {
    return works ? static_cast<LastError*>(pthread_getspecific(key)) : nullptr;
  }
  LastError* make() const {
    void* const made = works ? std::malloc(sizeof(LastError)) : nullptr;
    if (!made || pthread_setspecific(key, made) == 0) return static_cast<LastError*>(made);
    std::free(made);
    return nullptr;
  }
};
const Texts texts;

}  // namespace

tsm_status fail(tsm_status status, const char* message, int64_t chunk) noexcept {
  LastError* error = texts.get();
  if (!error) error = texts.make();
  if (error) {
    error->chunk = chunk;
    std::snprintf(error->text, sizeof error->text, "%s", message);
  }
  return status;
}

const char* last_error() noexcept {
  const LastError* const error = texts.get();
  return error ? error->text : "";
}

int64_t last_error_chunk() noexcept {
  const LastError* const error = texts.get();
  return error ? error->chunk : -1;
}

}  // namespace tsm::c_api
