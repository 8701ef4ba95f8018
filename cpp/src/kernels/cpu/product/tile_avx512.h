// The inner loop of float32 products with AVX-512 in assembly: 4 to 9 rows and a panel of three
// registers, or 4 to 6 rows and four registers. Products are limited by issue slots, above all
// while the core's other hyperthread is busy, so the number of instructions matters: for 6 rows,
// four registers and four groups this loop has 135, gcc's version of `microkernel` about 155. With
// 5 rows or more, the multiply-adds of rows 0, 3 and 6 read their activations with an embedded
// broadcast. That takes more loads, and pays off only if the address has no index register. Both
// tiles have the same number of instructions per multiply-add, but 9 x 3 reads a third less of the
// matrix (docs/internals/measured_cpu_tiles.md).
#pragma once
#include "kernels/cpu/product/matrix.h"

#if defined(__AVX512F__) && defined(__x86_64__) && !defined(TSM_SMALL_TILES)
namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

struct Float32;

// clang-format off: not stable on these macros
// The addresses of the rows of x: 0 to 2 from [x] on, 3 to 5 from [x3] on, 6 to 8 from [x6] on.
#define TSM_AT0 "(%[x])"
#define TSM_AT1 "(%[x],%[x_next])"
#define TSM_AT2 "(%[x],%[x_next],2)"
#define TSM_AT3 "(%[x3])"
#define TSM_AT4 "(%[x3],%[x_next])"
#define TSM_AT5 "(%[x3],%[x_next],2)"
#define TSM_AT6 "(%[x6])"
#define TSM_AT7 "(%[x6],%[x_next])"
#define TSM_AT8 "(%[x6],%[x_next],2)"

// Three registers: the sums of row r are in registers 3 r on, the weights in 27 to 29.
#define TSM_LOAD3(a, b, c)                                                             \
  "vmovups (%[from]), %%zmm" #a "\n vmovups 64(%[from]), %%zmm" #b                     \
  "\n vmovups 128(%[from]), %%zmm" #c "\n add %[from_next], %[from]\n"
#define TSM_STORE3(a, b, c)                                                            \
  "vmovups %%zmm" #a ", (%[to])\n vmovups %%zmm" #b ", 64(%[to])\n vmovups %%zmm" #c   \
  ", 128(%[to])\n add %[to_next], %[to]\n"
#define TSM_MADDS3(x, a, b, c)                                                         \
  "vfmadd231ps " x ", %%zmm27, %%zmm" #a "\n vfmadd231ps " x ", %%zmm28, %%zmm" #b     \
  "\n vfmadd231ps " x ", %%zmm29, %%zmm" #c "\n"
#define TSM_WEIGHTS3(i)                                                                \
  "vmovups 192*" #i "(%[w]), %%zmm27\n vmovups 192*" #i "+64(%[w]), %%zmm28\n"         \
  "vmovups 192*" #i "+128(%[w]), %%zmm29\n"
// Group i of the four: a row that is broadcast first, and one that is broadcast by its multiply-adds.
#define TSM_ROW3(at, i, a, b, c) \
  "vbroadcastss 4*" #i at ", %%zmm30\n" TSM_MADDS3("%%zmm30", a, b, c)
#define TSM_FIRST3(at, i, a, b, c) TSM_MADDS3("4*" #i at "%{1to16%}", a, b, c)
#define TSM_ROWS3_4(f) f(0, 1, 2) f(3, 4, 5) f(6, 7, 8) f(9, 10, 11)
#define TSM_ROWS3_5(f) TSM_ROWS3_4(f) f(12, 13, 14)
#define TSM_ROWS3_6(f) TSM_ROWS3_5(f) f(15, 16, 17)
#define TSM_ROWS3_7(f) TSM_ROWS3_6(f) f(18, 19, 20)
#define TSM_ROWS3_8(f) TSM_ROWS3_7(f) f(21, 22, 23)
#define TSM_ROWS3_9(f) TSM_ROWS3_8(f) f(24, 25, 26)
#define TSM_FOUR3(i, first)                                                            \
  TSM_WEIGHTS3(i) TSM_ROW3(TSM_AT1, i, 3, 4, 5) TSM_ROW3(TSM_AT2, i, 6, 7, 8)          \
  first(TSM_AT0, i, 0, 1, 2) first(TSM_AT3, i, 9, 10, 11)
#define TSM_STEP3_4(i) TSM_FOUR3(i, TSM_ROW3)
#define TSM_STEP3_5(i) TSM_FOUR3(i, TSM_FIRST3) TSM_ROW3(TSM_AT4, i, 12, 13, 14)
#define TSM_STEP3_6(i) TSM_STEP3_5(i) TSM_ROW3(TSM_AT5, i, 15, 16, 17)
#define TSM_STEP3_7(i) TSM_STEP3_6(i) TSM_FIRST3(TSM_AT6, i, 18, 19, 20)
#define TSM_STEP3_8(i) TSM_STEP3_7(i) TSM_ROW3(TSM_AT7, i, 21, 22, 23)
#define TSM_STEP3_9(i) TSM_STEP3_8(i) TSM_ROW3(TSM_AT8, i, 24, 25, 26)

// Four registers: the sums of row r are in registers 4 r on, the weights in 24 to 27.
#define TSM_LOAD4(a, b, c, d)                                                          \
  "vmovups (%[from]), %%zmm" #a "\n vmovups 64(%[from]), %%zmm" #b                     \
  "\n vmovups 128(%[from]), %%zmm" #c "\n vmovups 192(%[from]), %%zmm" #d              \
  "\n add %[from_next], %[from]\n"
#define TSM_STORE4(a, b, c, d)                                                         \
  "vmovups %%zmm" #a ", (%[to])\n vmovups %%zmm" #b ", 64(%[to])\n vmovups %%zmm" #c   \
  ", 128(%[to])\n vmovups %%zmm" #d ", 192(%[to])\n add %[to_next], %[to]\n"
#define TSM_MADDS4(x, a, b, c, d)                                                      \
  "vfmadd231ps " x ", %%zmm24, %%zmm" #a "\n vfmadd231ps " x ", %%zmm25, %%zmm" #b     \
  "\n vfmadd231ps " x ", %%zmm26, %%zmm" #c "\n vfmadd231ps " x ", %%zmm27, %%zmm" #d "\n"
#define TSM_WEIGHTS4(i)                                                                \
  "vmovups 256*" #i "(%[w]), %%zmm24\n vmovups 256*" #i "+64(%[w]), %%zmm25\n"         \
  "vmovups 256*" #i "+128(%[w]), %%zmm26\n vmovups 256*" #i "+192(%[w]), %%zmm27\n"
#define TSM_ROW4(at, i, a, b, c, d) \
  "vbroadcastss 4*" #i at ", %%zmm28\n" TSM_MADDS4("%%zmm28", a, b, c, d)
#define TSM_FIRST4(at, i, a, b, c, d) TSM_MADDS4("4*" #i at "%{1to16%}", a, b, c, d)
#define TSM_ROWS4_4(f) f(0, 1, 2, 3) f(4, 5, 6, 7) f(8, 9, 10, 11) f(12, 13, 14, 15)
#define TSM_ROWS4_5(f) TSM_ROWS4_4(f) f(16, 17, 18, 19)
#define TSM_ROWS4_6(f) TSM_ROWS4_5(f) f(20, 21, 22, 23)
#define TSM_FOUR4(i, first)                                                            \
  TSM_WEIGHTS4(i) TSM_ROW4(TSM_AT1, i, 4, 5, 6, 7) TSM_ROW4(TSM_AT2, i, 8, 9, 10, 11)  \
  first(TSM_AT0, i, 0, 1, 2, 3) first(TSM_AT3, i, 12, 13, 14, 15)
#define TSM_STEP4_4(i) TSM_FOUR4(i, TSM_ROW4)
#define TSM_STEP4_5(i) TSM_FOUR4(i, TSM_FIRST4) TSM_ROW4(TSM_AT4, i, 16, 17, 18, 19)
#define TSM_STEP4_6(i) TSM_STEP4_5(i) TSM_ROW4(TSM_AT5, i, 20, 21, 22, 23)

// The loop prefetches `lines` cache lines from `ahead` on, then multiplies four groups. There are
// two loops, because one more jump per iteration costs up to 5%. For a matrix in L2, lines are
// prefetched in pairs, and every second iteration prefetches the sums of one of `rows` rows from
// `below` on: all at once they would keep the line fill buffers busy, and the loop would wait for
// weights ([from] and [from_next] are free by then). For a far matrix (`lines` is negative), lines
// are prefetched one by one.
#define TSM_FETCH_NEAR(W)                                                                    \
  "2: prefetcht1 (%[ahead])\n prefetcht1 64(%[ahead])\n add $128, %[ahead]\n"               \
  "sub $2, %[left]\n jnz 2b\n"                                                              \
  "3: testb $16, %b[x]\n jnz 4f\n dec %[from_next]\n js 4f\n prefetcht0 (%[from])\n"         \
  "prefetcht0 64(%[from])\n prefetcht0 128(%[from])\n"                                       \
  ".if " #W " > 3\n prefetcht0 192(%[from])\n .endif\n add %[to_next], %[from]\n 4:\n"
#define TSM_FETCH_FAR(W) \
  "2: prefetcht1 (%[ahead])\n add $64, %[ahead]\n inc %[left]\n jnz 2b\n 3:\n"
#define TSM_GROUPS(W, R, fetch)                                                              \
  "1: test %[lines], %[lines]\n jz 3f\n mov %[lines], %[left]\n" fetch(W)                    \
  TSM_STEP##W##_##R(0) TSM_STEP##W##_##R(1) TSM_STEP##W##_##R(2) TSM_STEP##W##_##R(3)        \
  "add $256*" #W ", %[w]\n add $16, %[x3]\n .if " #R " > 6\n add $16, %[x6]\n .endif\n"      \
  "add $16, %[x]\n cmp %[end], %[x]\n jne 1b\n"
#define TSM_LOOP(W, R)                                                                       \
  TSM_ROWS##W##_##R(TSM_LOAD##W)                                                             \
  "mov %[below], %[from]\n mov %[rows], %[from_next]\n test %[lines], %[lines]\n js 5f\n"    \
  ".p2align 5\n" TSM_GROUPS(W, R, TSM_FETCH_NEAR)                                            \
  "jmp 6f\n .p2align 5\n 5:\n" TSM_GROUPS(W, R, TSM_FETCH_FAR) "6:\n"                        \
  TSM_ROWS##W##_##R(TSM_STORE##W)
// Operands that change are marked "&": an input of the same value must not share their register.
#define TSM_TILE(W, R)                                                                       \
  template <>                                                                                \
  struct Tile<Float32, R, W> {                                                               \
    static constexpr bool kExists = true;                                                    \
    static void run(const float* w, const char* x, int64_t x_next, int64_t groups,           \
                    const float* from, int64_t from_next, float* to, int64_t to_next,        \
                    const char* ahead, int64_t lines, const float* below, int64_t rows) {    \
      const char *x3 = x + 3 * x_next, *x6 = x + 6 * x_next, *const end = x + 4 * groups;    \
      int64_t left;                                                                          \
      from_next *= 4;                                                                        \
      asm volatile(                                                                          \
          TSM_LOOP(W, R)                                                                     \
          : [w] "+&r"(w), [x] "+&r"(x), [x3] "+&r"(x3), [x6] "+&r"(x6), [ahead] "+&r"(ahead),\
            [left] "=&r"(left), [from] "+&r"(from), [to] "+&r"(to),                          \
            [from_next] "+&r"(from_next)                                                     \
          : [x_next] "r"(x_next), [end] "m"(end), [lines] "r"(lines),                        \
            [to_next] "r"(4 * to_next), [below] "m"(below), [rows] "m"(rows)                 \
          : "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9",  \
            "zmm10", "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", \
            "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", \
            "zmm28", "zmm29", "zmm30", "memory", "cc");                                      \
    }                                                                                        \
  };
TSM_TILE(3, 4)
TSM_TILE(3, 5)
TSM_TILE(3, 6)
TSM_TILE(3, 7)
TSM_TILE(3, 8)
TSM_TILE(3, 9)
TSM_TILE(4, 4)
TSM_TILE(4, 5)
TSM_TILE(4, 6)

#undef TSM_TILE
#undef TSM_LOOP
#undef TSM_GROUPS
#undef TSM_FETCH_FAR
#undef TSM_FETCH_NEAR
#undef TSM_STEP4_6
#undef TSM_STEP4_5
#undef TSM_STEP4_4
#undef TSM_FOUR4
#undef TSM_ROWS4_6
#undef TSM_ROWS4_5
#undef TSM_ROWS4_4
#undef TSM_FIRST4
#undef TSM_ROW4
#undef TSM_WEIGHTS4
#undef TSM_MADDS4
#undef TSM_STORE4
#undef TSM_LOAD4
#undef TSM_STEP3_9
#undef TSM_STEP3_8
#undef TSM_STEP3_7
#undef TSM_STEP3_6
#undef TSM_STEP3_5
#undef TSM_STEP3_4
#undef TSM_FOUR3
#undef TSM_ROWS3_9
#undef TSM_ROWS3_8
#undef TSM_ROWS3_7
#undef TSM_ROWS3_6
#undef TSM_ROWS3_5
#undef TSM_ROWS3_4
#undef TSM_FIRST3
#undef TSM_ROW3
#undef TSM_WEIGHTS3
#undef TSM_MADDS3
#undef TSM_STORE3
#undef TSM_LOAD3
#undef TSM_AT8
#undef TSM_AT7
#undef TSM_AT6
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
