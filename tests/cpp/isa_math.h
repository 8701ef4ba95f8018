// The primitives of one instruction set over arrays, and in float64, for test_math.cc.
#pragma once
#include <cstdint>

struct MathFunction {
  const char* name;
  void (*run)(const float* x, int64_t n, float* y);
  double (*exact)(double x);
};
struct IsaMath {
  int lanes, count;
  const MathFunction* functions;
};
