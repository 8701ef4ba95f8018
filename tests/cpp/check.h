// A test program: CHECK what must hold; the exit status says whether all did.
#pragma once
#include <cmath>
#include <cstdio>

namespace check {

inline int failures = 0;

inline void that(bool condition, const char* text, const char* file, int line) {
  if (condition) return;
  ++failures;
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
}

inline void close(double found, double expected, double tolerance, const char* text,
                  const char* file, int line) {
  if (std::fabs(found - expected) <= tolerance * std::fmax(1.0, std::fabs(expected))) return;
  ++failures;
  std::fprintf(stderr, "%s:%d: %s = %.17g, expected %.17g within %g\n", file, line, text, found,
               expected, tolerance);
}

inline int result() {
  if (failures == 0) std::puts("all checks passed");
  return failures == 0 ? 0 : 1;
}

}  // namespace check

#define CHECK(condition) check::that(condition, #condition, __FILE__, __LINE__)
#define CHECK_CLOSE(found, expected, tolerance) \
  check::close(found, expected, tolerance, #found, __FILE__, __LINE__)
