// No exception leaves the C API: each of its functions runs inside guard().
#pragma once
#include <new>

#include "core/error.h"
#include "tsm/tsm.h"

namespace tsm::c_api {

// Keeps the message and the index of the chunk for this thread's last_error(), if there is memory
// for them.
tsm_status fail(tsm_status status, const char* message, int64_t chunk = -1) noexcept;
const char* last_error() noexcept;
int64_t last_error_chunk() noexcept;

inline tsm_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return TSM_INVALID_ARGUMENT;
    case ErrorKind::kBadFile:
      return TSM_BAD_FILE;
    case ErrorKind::kBadState:
      return TSM_BAD_STATE;
    case ErrorKind::kBusy:
      return TSM_BUSY;
    case ErrorKind::kOutOfMemory:
      return TSM_OUT_OF_MEMORY;
    case ErrorKind::kInternal:
      return TSM_INTERNAL;
    case ErrorKind::kCancelled:
      return TSM_CANCELLED;
    case ErrorKind::kFull:
      return TSM_FULL;
    case ErrorKind::kDeadline:
      return TSM_DEADLINE;
    case ErrorKind::kClosed:
      return TSM_CLOSED;
  }
  return TSM_INTERNAL;
}

template <class Function>
tsm_status guard(const Function& f) noexcept {
  try {
    f();
    return TSM_OK;
  } catch (const Error& error) {
    return fail(status_of(error.kind), error.what(), error.chunk);
  } catch (const std::bad_alloc&) {
    return fail(TSM_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(TSM_INTERNAL, error.what());
  } catch (...) {
    return fail(TSM_INTERNAL, "unknown exception");
  }
}

// Returns the caller's pointer, or throws an error that names the argument.
template <class T>
T* given(T* pointer, const char* argument) {
  if (!pointer) throw Error(std::string(argument) + " is null; accepted: a valid pointer");
  return pointer;
}

}  // namespace tsm::c_api
