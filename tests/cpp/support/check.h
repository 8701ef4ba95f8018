// For all C++ tests: doctest, whose main is in main.cc, and CHECK_CLOSE.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>

inline bool is_close(double found, double expected, double tolerance) {
  return std::fabs(found - expected) <= tolerance * std::fmax(1.0, std::fabs(expected));
}

#define CHECK_CLOSE(found, expected, tolerance)                                                 \
  CHECK_MESSAGE(is_close(found, expected, tolerance), double(found), " for ", double(expected), \
                ", which may differ by ", double(tolerance))
