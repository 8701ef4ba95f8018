// namespace api: the functions of the C API that failing_calls.h calls. They come from the library
// TSM_RUNTIME_LIBRARY, which is loaded at run time, as an interpreter or a host of plug-ins would
// load it; if that is not defined, they come from the libraries linked with the program.
#pragma once
#include "tsm/pool.h"
#include "tsm/tsm.h"

#define TSM_CALLED(X)        \
  X(tsm_last_error)          \
  X(tsm_model_load)          \
  X(tsm_model_free)          \
  X(tsm_model_feed_many)     \
  X(tsm_model_encode)        \
  X(tsm_model_decode)        \
  X(tsm_model_generate_many) \
  X(tsm_stream_create)       \
  X(tsm_stream_free)         \
  X(tsm_stream_fork)         \
  X(tsm_stream_reset)        \
  X(tsm_stream_feed_tokens)  \
  X(tsm_stream_feed_values)  \
  X(tsm_stream_score)        \
  X(tsm_stream_generate)     \
  X(tsm_stream_get_state)    \
  X(tsm_stream_save)         \
  X(tsm_stream_load)         \
  X(tsm_pool_create)         \
  X(tsm_pool_free)           \
  X(tsm_pool_put)            \
  X(tsm_pool_feed)           \
  X(tsm_pool_generate)       \
  X(tsm_pool_take)           \
  X(tsm_pool_release)

#ifdef TSM_RUNTIME_LIBRARY
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace api {

template <class Function>
Function* found(const char* name) {
  static void* const library = dlopen(TSM_RUNTIME_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  void* const function = library ? dlsym(library, name) : nullptr;
  if (!function) {
    std::fprintf(stderr, "%s: %s\n", name, dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function*>(function);
}
#define TSM_FIND(name) inline const auto name = found<decltype(::name)>(#name);
TSM_CALLED(TSM_FIND)
#undef TSM_FIND

}  // namespace api

#else
namespace api {
#define TSM_USE(name) using ::name;
TSM_CALLED(TSM_USE)
#undef TSM_USE
}  // namespace api
#endif
#undef TSM_CALLED
