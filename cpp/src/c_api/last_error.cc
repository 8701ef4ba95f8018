// The message of a thread's last failure. Not a `thread_local`: in a library that was loaded at run
// time the system makes room for one at its first use, and ends the process where it cannot.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "c_api/guard.h"

namespace tsm::c_api {
namespace {

constexpr size_t kRoom = 1024;

// A thread's text goes with it. Where the process has no more keys, there are no messages.
struct Texts {
  pthread_key_t key{};
  const bool works = pthread_key_create(&key, std::free) == 0;
  ~Texts() {
    if (works) pthread_key_delete(key);
  }
  char* get() const { return works ? static_cast<char*>(pthread_getspecific(key)) : nullptr; }
  char* make() const {
    char* const text = works ? static_cast<char*>(std::malloc(kRoom)) : nullptr;
    if (!text || pthread_setspecific(key, text) == 0) return text;
    std::free(text);
    return nullptr;
  }
};
const Texts texts;

}  // namespace

tsm_status fail(tsm_status status, const char* message) noexcept {
  char* text = texts.get();
  if (!text) text = texts.make();
  if (text) std::snprintf(text, kRoom, "%s", message);
  return status;
}

const char* last_error() noexcept {
  const char* const text = texts.get();
  return text ? text : "";
}

}  // namespace tsm::c_api
