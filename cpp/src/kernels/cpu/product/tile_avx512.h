// The inner loop of float32 products with AVX-512 in assembly, for 4 to 6 rows and a panel of 4
// registers. Products are limited by issue slots, above all while the core's other hyperthread is
// busy, so the number of instructions matters: for 6 rows and four groups this loop has 135, gcc's
// version of `microkernel` about 155. With 5 and 6 rows, the multiply-adds of rows 0 and 3 read
// their activations with an embedded broadcast. That takes more loads, and pays off only if the
// address has no index register (docs/internals/cpu_speed.md).
#pragma once
#include "kernels/cpu/product/matrix.h"

#if defined(__AVX512F__) && defined(__x86_64__) && !defined(TSM_SMALL_TILES)
namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

struct Float32;

// clang-format off: not stable on these macros
// The addresses of the rows of `p`: 0 to 2 from [p] on, 3 to 5 from [p3] on.
#define TSM_AT0(p) "(%[" p "])"
#define TSM_AT1(p) "(%[" p "],%[" p "_next])"
#define TSM_AT2(p) "(%[" p "],%[" p "_next],2)"
#define TSM_AT3(p) "(%[" p "3])"
#define TSM_AT4(p) "(%[" p "3],%[" p "_next])"
#define TSM_AT5(p) "(%[" p "3],%[" p "_next],2)"

#define TSM_LOAD(at, a, b, c, d)                                                              \
  "vmovups " at ", %%zmm" #a "\n vmovups 64" at ", %%zmm" #b "\n vmovups 128" at ", %%zmm" #c \
  "\n vmovups 192" at ", %%zmm" #d "\n"
#define TSM_STORE(at, a, b, c, d)                                                             \
  "vmovups %%zmm" #a ", " at "\n vmovups %%zmm" #b ", 64" at "\n vmovups %%zmm" #c ", 128" at \
  "\n vmovups %%zmm" #d ", 192" at "\n"
#define TSM_MADDS(x, a, b, c, d)                                                   \
  "vfmadd231ps " x ", %%zmm24, %%zmm" #a "\n vfmadd231ps " x ", %%zmm25, %%zmm" #b \
  "\n vfmadd231ps " x ", %%zmm26, %%zmm" #c "\n vfmadd231ps " x ", %%zmm27, %%zmm" #d "\n"
// Group i of the four.
#define TSM_ROW(at, i, a, b, c, d) \
  "vbroadcastss 4*" #i at ", %%zmm28\n" TSM_MADDS("%%zmm28", a, b, c, d)
#define TSM_FIRST(at, i, a, b, c, d) TSM_MADDS("4*" #i at "%{1to16%}", a, b, c, d)
#define TSM_WEIGHTS(i)                                  \
  "vmovups 256*" #i "(%[w]), %%zmm24\n vmovups 256*" #i \
  "+64(%[w]), %%zmm25\n"                                \
  "vmovups 256*" #i "+128(%[w]), %%zmm26\n vmovups 256*" #i "+192(%[w]), %%zmm27\n"

// f(row) for 4, 5 or 6 rows; the sums are in registers 0 to 23.
#define TSM_ROWS4(f, p)                                                           \
  f(TSM_AT0(p), 0, 1, 2, 3) f(TSM_AT1(p), 4, 5, 6, 7) f(TSM_AT2(p), 8, 9, 10, 11) \
      f(TSM_AT3(p), 12, 13, 14, 15)
#define TSM_ROWS5(f, p) TSM_ROWS4(f, p) f(TSM_AT4(p), 16, 17, 18, 19)
#define TSM_ROWS6(f, p) TSM_ROWS5(f, p) f(TSM_AT5(p), 20, 21, 22, 23)
#define TSM_FOUR(i, first)                                                  \
  TSM_WEIGHTS(i)                                                            \
  TSM_ROW(TSM_AT1("x"), i, 4, 5, 6, 7)                                      \
  TSM_ROW(TSM_AT2("x"), i, 8, 9, 10, 11) first(TSM_AT0("x"), i, 0, 1, 2, 3) \
      first(TSM_AT3("x"), i, 12, 13, 14, 15)
#define TSM_STEP4(i) TSM_FOUR(i, TSM_ROW)
#define TSM_STEP5(i) TSM_FOUR(i, TSM_FIRST) TSM_ROW(TSM_AT4("x"), i, 16, 17, 18, 19)
#define TSM_STEP6(i) TSM_STEP5(i) TSM_ROW(TSM_AT5("x"), i, 20, 21, 22, 23)

// The loop: prefetches `lines` cache lines from `ahead` on, then multiplies four groups.
#define TSM_LOOP(R) \
  TSM_ROWS##R(TSM_LOAD, "from")                                                           \
  "1: test %[lines], %[lines]\n jz 3f\n mov %[lines], %[left]\n"                          \
  "2: prefetcht1 (%[ahead])\n add $64, %[ahead]\n dec %[left]\n jnz 2b\n"                 \
  "3:\n" TSM_STEP##R(0) TSM_STEP##R(1) TSM_STEP##R(2) TSM_STEP##R(3)                      \
  "add $1024, %[w]\n add $16, %[x3]\n add $16, %[x]\n cmp %[end], %[x]\n jne 1b\n"        \
  TSM_ROWS##R(TSM_STORE, "to")
#define TSM_TILE(R)                                                                          \
  template <>                                                                                \
  struct Tile<Float32, R> {                                                                  \
    static constexpr bool kExists = true;                                                    \
    static void run(const float* w, const char* x, int64_t x_next, int64_t groups,           \
                    const float* from, int64_t from_next, float* to, int64_t to_next,        \
                    const char* ahead, int64_t lines) {                                      \
      const char *x3 = x + 3 * x_next, *const end = x + 4 * groups;                          \
      from_next *= 4, to_next *= 4;                                                          \
      int64_t left;                                                                          \
      asm volatile(                                                                          \
          TSM_LOOP(R)                                                                        \
          : [w] "+r"(w), [x] "+r"(x), [x3] "+r"(x3), [ahead] "+r"(ahead), [left] "=&r"(left) \
          : [x_next] "r"(x_next), [end] "m"(end), [lines] "r"(lines), [from] "r"(from),      \
            [from_next] "r"(from_next),                                                      \
            [from3] "r"(reinterpret_cast<const char*>(from) + 3 * from_next), [to] "r"(to),  \
            [to_next] "r"(to_next), [to3] "r"(reinterpret_cast<char*>(to) + 3 * to_next)     \
          : "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9",  \
            "zmm10", "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", \
            "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", \
            "zmm28", "memory", "cc");                                                        \
    }                                                                                        \
  };
TSM_TILE(4)
TSM_TILE(5)
TSM_TILE(6)

#undef TSM_TILE
#undef TSM_LOOP
#undef TSM_STEP6
#undef TSM_STEP5
#undef TSM_STEP4
#undef TSM_FOUR
#undef TSM_ROWS6
#undef TSM_ROWS5
#undef TSM_ROWS4
#undef TSM_WEIGHTS
#undef TSM_FIRST
#undef TSM_ROW
#undef TSM_MADDS
#undef TSM_STORE
#undef TSM_LOAD
#undef TSM_AT5
#undef TSM_AT4
#undef TSM_AT3
#undef TSM_AT2
#undef TSM_AT1
#undef TSM_AT0
// clang-format on

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
#endif
