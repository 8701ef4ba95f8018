// The one exception of the compiled core: thrown at entry, never inside a time loop.
#pragma once
#include <stdexcept>
#include <string>

namespace tsm {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(bool condition, const std::string& message) {
  if (!condition) throw Error(message);
}

}  // namespace tsm
