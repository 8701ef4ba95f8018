// The only exception type of the compiled core. It is thrown on entry to a call, never inside a
// time loop.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace tsm {

// The kind of error; the values are the status codes of the C API.
enum class ErrorKind {
  kInvalidArgument = 1,
  kBadFile = 2,
  kBadState = 3,
  kBusy = 4,
  kOutOfMemory = 5,
  kInternal = 6,
  kCancelled = 7,
  kFull = 8,
  kDeadline = 9,
  kClosed = 10
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorKind kind = ErrorKind::kInvalidArgument)
      : std::runtime_error(message), kind(kind) {}
  ErrorKind kind;
  int64_t chunk = -1;  // index of the refused chunk in a call on many streams; -1: no single one
};

// The error of items[number] in a call on many.
inline Error numbered(const char* items, int64_t number, const Error& error) {
  Error found(std::string(items) + "[" + std::to_string(number) + "]: " + error.what(), error.kind);
  found.chunk = number;
  return found;
}

inline void require(bool condition, const std::string& message,
                    ErrorKind kind = ErrorKind::kInvalidArgument) {
  if (!condition) throw Error(message, kind);
}

}  // namespace tsm
