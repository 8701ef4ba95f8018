// The floating-point mode of a thread: rounding, whether subnormal numbers count as 0, and which
// exceptions trap. The program may have changed it, and so may any library that it loads: one that
// was linked with -ffast-math makes subnormal numbers 0 in the thread that loads it. A new thread
// starts with the mode of its creator.
#pragma once
#include <cstdint>

namespace tsm {

// MXCSR without the flags of past exceptions, FPCR, or 0 where neither exists.
using ArithmeticMode = uint64_t;

// Rounding to nearest, no traps, and subnormal numbers are 0: on x86 a step of a stream whose
// states fade away would take dozens of times as long.
#if defined(__x86_64__)
constexpr ArithmeticMode kEngineArithmetic = 0x9fc0;
#elif defined(__aarch64__)
constexpr ArithmeticMode kEngineArithmetic = 1 << 24;
#else
constexpr ArithmeticMode kEngineArithmetic = 0;
#endif

// Computes in a mode until the end of the scope. Code inside should be behind a call, because the
// compiler does not know that arithmetic depends on the mode.
class Arithmetic {
 public:
  explicit Arithmetic(ArithmeticMode mode = kEngineArithmetic)
      : before_(read()), changed_(mode_of(before_) != mode) {
    if (changed_) write(mode);
  }
  ~Arithmetic() {
    if (changed_) write(before_);
  }
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;

  static ArithmeticMode current() { return mode_of(read()); }

 private:
#if defined(__x86_64__)
  static uint64_t mode_of(uint64_t control) { return control & 0xffc0; }
  static uint64_t read() {
    uint32_t control;
    asm volatile("stmxcsr %0" : "=m"(control)::"memory");
    return control;
  }
  static void write(uint64_t control) {
    const auto value = uint32_t(control);
    asm volatile("ldmxcsr %0" ::"m"(value) : "memory");
  }
#elif defined(__aarch64__)
  static uint64_t mode_of(uint64_t control) { return control; }
  static uint64_t read() {
    uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control)::"memory");
    return control;
  }
  static void write(uint64_t control) { asm volatile("msr fpcr, %0" ::"r"(control) : "memory"); }
#else
  static uint64_t mode_of(uint64_t control) { return control; }
  static uint64_t read() { return 0; }
  static void write(uint64_t) {}
#endif

  const uint64_t before_;
  const bool changed_;
};

}  // namespace tsm
