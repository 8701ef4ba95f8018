// Structs that begin with their size: only the fields that the caller knows are read or written.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>

#include "c_api/guard.h"

namespace tsm::c_api {

template <class T>
size_t known(const T& theirs, const char* argument) {
  constexpr size_t least = sizeof(size_t);
  if (theirs.size < least)
    throw Error(std::string(argument) + "->size = " + std::to_string(theirs.size) +
                "; accepted: sizeof(*" + argument + ")");
  return std::min(theirs.size, sizeof(T));
}

// Overwrites our defaults with the caller's fields. A newer program may have fields that this
// library does not know; they are accepted if they are 0.
template <class T>
T read_known(const T* theirs, T defaults, const char* argument) {
  if (!theirs) return defaults;
  std::memcpy(static_cast<void*>(&defaults), theirs, known(*theirs, argument));
  const auto* bytes = reinterpret_cast<const unsigned char*>(theirs);
  for (size_t i = sizeof(T); i < theirs->size; ++i) {
    if (bytes[i] == 0) continue;
    throw Error(std::string(argument) + " sets a field at byte " + std::to_string(i) +
                " that this library does not know; accepted: 0 there, or a newer library");
  }
  return defaults;
}

template <class T>
void write_known(T* theirs, T ours, const char* argument) {
  const size_t bytes = known(*given(theirs, argument), argument);
  ours.size = theirs->size;
  std::memcpy(static_cast<void*>(theirs), &ours, bytes);
}

}  // namespace tsm::c_api
