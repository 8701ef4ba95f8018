// The primitives of one instruction set over arrays, for test_math.cc.
#pragma once
#include <cstdint>

struct MathFunction {
  const char* name;
  void (*run)(const float* x, int64_t n, float* y);
};
struct IsaMath {
  int lanes, count;
  const MathFunction* functions;
};
