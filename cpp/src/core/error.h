// The one exception of the compiled core: thrown at entry, never inside a time loop.
#pragma once
#include <stdexcept>
#include <string>

namespace tsm {

// What kind of mistake it was; the C API's status codes are these.
enum class ErrorKind { kInvalidArgument = 1, kBadFile = 2, kBadState = 3, kBusy = 4 };

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorKind kind = ErrorKind::kInvalidArgument)
      : std::runtime_error(message), kind(kind) {}
  ErrorKind kind;
};

inline void require(bool condition, const std::string& message,
                    ErrorKind kind = ErrorKind::kInvalidArgument) {
  if (!condition) throw Error(message, kind);
}

}  // namespace tsm
