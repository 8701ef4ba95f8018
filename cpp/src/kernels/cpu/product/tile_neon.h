// The inner loops of products with NEON in assembly: 2 to 6 rows and a panel of four registers
// (float32 and, with dot products, int8), and one row (float32 and bfloat16). Compilers move
// multiply-adds of the same sum next to each other and need more registers than there are; with 6
// rows, 24 sums, 6 registers of activations and 2 of weights, every register is in use.
#pragma once
#include "kernels/cpu/product/matrix.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && !defined(TSM_GENERIC) && \
    !defined(TSM_SMALL_TILES)
#define TSM_NEON_TILES
namespace tsm {
inline namespace TSM_ISA_NAME {
namespace {

struct Float32;
struct BFloat16;
struct Int8;

// clang-format off: not stable on these macros
#define TSM_ROWS2(f, a, b) f(0, 0, 1, 2, 3, 24, a, b) f(1, 4, 5, 6, 7, 25, a, b)
#define TSM_ROWS3(f, a, b) TSM_ROWS2(f, a, b) f(2, 8, 9, 10, 11, 26, a, b)
#define TSM_ROWS4(f, a, b) TSM_ROWS3(f, a, b) f(3, 12, 13, 14, 15, 27, a, b)
#define TSM_ROWS5(f, a, b) TSM_ROWS4(f, a, b) f(4, 16, 17, 18, 19, 28, a, b)
#define TSM_ROWS6(f, a, b) TSM_ROWS5(f, a, b) f(5, 20, 21, 22, 23, 29, a, b)
// For row r with its sums in v##s0 to v##s3 and its activations in v##x.
#define TSM_LOAD(r, s0, s1, s2, s3, x, a, b)                                                   \
  "ldp q" #s0 ", q" #s1 ", [%[from]]\n ldp q" #s2 ", q" #s3 ", [%[from], #32]\n"               \
  "add %[from], %[from], %[from_next]\n"
#define TSM_STORE(r, s0, s1, s2, s3, x, a, b)                                                  \
  "stp q" #s0 ", q" #s1 ", [%[to]]\n stp q" #s2 ", q" #s3 ", [%[to], #32]\n"                   \
  "add %[to], %[to], %[to_next]\n"
#define TSM_FACTORS(r, s0, s1, s2, s3, x, a, b) "ldr q" #x ", [%[x" #r "]], #16\n"
#define TSM_MADD0(r, s0, s1, s2, s3, x, w, i) "fmla v" #s0 ".4s, v" #w ".4s, v" #x ".s[" #i "]\n"
#define TSM_DOT0(r, s0, s1, s2, s3, x, w, i) "sdot v" #s0 ".4s, v" #w ".16b, v" #x ".4b[" #i "]\n"
#define TSM_MADD1(r, s0, s1, s2, s3, x, w, i) "fmla v" #s1 ".4s, v" #w ".4s, v" #x ".s[" #i "]\n"
#define TSM_DOT1(r, s0, s1, s2, s3, x, w, i) "sdot v" #s1 ".4s, v" #w ".16b, v" #x ".4b[" #i "]\n"
#define TSM_MADD2(r, s0, s1, s2, s3, x, w, i) "fmla v" #s2 ".4s, v" #w ".4s, v" #x ".s[" #i "]\n"
#define TSM_DOT2(r, s0, s1, s2, s3, x, w, i) "sdot v" #s2 ".4s, v" #w ".16b, v" #x ".4b[" #i "]\n"
#define TSM_MADD3(r, s0, s1, s2, s3, x, w, i) "fmla v" #s3 ".4s, v" #w ".4s, v" #x ".s[" #i "]\n"
#define TSM_DOT3(r, s0, s1, s2, s3, x, w, i) "sdot v" #s3 ".4s, v" #w ".16b, v" #x ".4b[" #i "]\n"
#define TSM_GROUP(R, op, i)                                                                    \
  "ldr q30, [%[w], #64*" #i "]\n" TSM_ROWS##R(op##0, 30, i)                                    \
  "ldr q31, [%[w], #64*" #i "+16]\n" TSM_ROWS##R(op##1, 31, i)                                 \
  "ldr q30, [%[w], #64*" #i "+32]\n" TSM_ROWS##R(op##2, 30, i)                                 \
  "ldr q31, [%[w], #64*" #i "+48]\n" TSM_ROWS##R(op##3, 31, i)
// Two lines from `ahead` on, or one twice; without a jump, which costs up to 7% at some addresses.
#define TSM_FETCH                                                                              \
  "prfm pldl2keep, [%[ahead]]\n prfm pldl2keep, [%[ahead], %[second]]\n"                       \
  "add %[ahead], %[ahead], %[lines], lsl #6\n"
#define TSM_LOOP(R, op, fetch)                                                                 \
  asm volatile(                                                                                \
      TSM_ROWS##R(TSM_LOAD, , )                                                                \
      ".p2align 5\n 1:\n" fetch TSM_ROWS##R(TSM_FACTORS, , )                                   \
      TSM_GROUP(R, op, 0) TSM_GROUP(R, op, 1) TSM_GROUP(R, op, 2) TSM_GROUP(R, op, 3)          \
      "add %[w], %[w], #256\n subs %[groups], %[groups], #4\n b.gt 1b\n"                       \
      TSM_ROWS##R(TSM_STORE, , )                                                               \
      : [w] "+&r"(w), [x0] "+&r"(x), [x1] "+&r"(x1), [x2] "+&r"(x2), [x3] "+&r"(x3),           \
        [x4] "+&r"(x4), [x5] "+&r"(x5), [groups] "+&r"(groups), [from] "+&r"(from),            \
        [to] "+&r"(to), [ahead] "+&r"(ahead)                                                   \
      : [lines] "r"(lines), [second] "r"(64 * (lines - 1)), [from_next] "r"(from_next),        \
        [to_next] "r"(to_next)                                                                 \
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",       \
        "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",    \
        "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory", "cc");
#define TSM_LOOPS(R, op)                                                                       \
  const char *x1 = x + x_next, *x2 = x1 + x_next, *x3 = x2 + x_next, *x4 = x3 + x_next,        \
             *x5 = x4 + x_next;                                                                \
  if (lines == 0)                                                                              \
    TSM_LOOP(R, op, "")                                                                        \
  else                                                                                         \
    TSM_LOOP(R, op, TSM_FETCH)
#define TSM_TILE(R)                                                                            \
  template <>                                                                                  \
  struct Tile<Float32, R, 4> {                                                                 \
    static constexpr bool kExists = true;                                                      \
    static void run(const float* w, const char* x, int64_t x_next, int64_t groups,             \
                    const float* from, int64_t from_next, float* to, int64_t to_next,          \
                    const char* ahead, int64_t lines, const float*, int64_t) {                 \
      from_next *= 4, to_next *= 4;                                                            \
      lines = lines < 0 ? -lines : lines;                                                      \
      TSM_LOOPS(R, TSM_MADD)                                                                   \
    }                                                                                          \
  };
#define TSM_SUM_TILE(R)                                                                        \
  template <>                                                                                  \
  struct SumTile<Int8, R, 4> {                                                                 \
    static constexpr bool kExists = true;                                                      \
    static void run(const int8_t* w, const char* x, int64_t x_next, int64_t groups,            \
                    void* to, const char* ahead, int64_t lines) {                              \
      constexpr int64_t to_next = 64, from_next = 64;                                          \
      const void* from = to;                                                                   \
      TSM_LOOPS(R, TSM_DOT)                                                                    \
    }                                                                                          \
  };
TSM_TILE(2)
TSM_TILE(3)
TSM_TILE(4)
TSM_TILE(5)
TSM_TILE(6)
#if defined(__ARM_FEATURE_DOTPROD)
TSM_SUM_TILE(2)
TSM_SUM_TILE(3)
TSM_SUM_TILE(4)
TSM_SUM_TILE(5)
TSM_SUM_TILE(6)
#endif

// One row and P panels at a time: their sums are in v0 to v7, the activations of four inputs in v8.
// The loop over inputs prefetches the beginning of the next panels, too. Memory beyond L2 is fastest
// in its own order: P = 1. Two panels hide the latency of a pair's two multiply-adds. Loads of
// float32 are single: `ldp` takes 3% longer.
#define TSM_LINE(w, w0, w1, w2, w3, at)                                                        \
  "prfm pldl1keep, [%[" #w "], #" #at "+1024]\n"                                               \
  "ldp q" #w0 ", q" #w1 ", [%[" #w "], #" #at "]\n"                                             \
  "ldp q" #w2 ", q" #w3 ", [%[" #w "], #" #at "+32]\n"
#define TSM_ONE(s, w, i) "fmla v" #s ".4s, v" #w ".4s, v8.s[" #i "]\n"
#define TSM_LOADED(s, w, i, at) "ldr q" #w ", [%[w], #" #at "]\n" TSM_ONE(s, w, i)
#define TSM_INPUT(i, at, w0, w1, w2, w3)                                                       \
  TSM_LOADED(0, w0, i, at) TSM_LOADED(1, w1, i, at+16)                                         \
  "prfm pldl1keep, [%[w], #" #at "+1024]\n"                                                    \
  TSM_LOADED(2, w2, i, at+32) TSM_LOADED(3, w3, i, at+48)
#define TSM_FLOAT32                                                                            \
  TSM_INPUT(0, 0, 16, 17, 18, 19) TSM_INPUT(1, 64, 20, 21, 22, 23)                             \
  TSM_INPUT(2, 128, 24, 25, 26, 27) TSM_INPUT(3, 192, 28, 29, 30, 31)
// Pairs of inputs: both become floats with zeros (v9) as their lower halves.
#define TSM_SPLIT(w, low)                                                                      \
  "trn1 v" #low ".8h, v9.8h, v" #w ".8h\n trn2 v" #w ".8h, v9.8h, v" #w ".8h\n"
#define TSM_PAIR(i, j, at)                                                                     \
  TSM_LINE(w, 16, 17, 18, 19, at) TSM_LINE(v, 20, 21, 22, 23, at)                              \
  TSM_SPLIT(16, 24) TSM_SPLIT(17, 25) TSM_SPLIT(18, 26) TSM_SPLIT(19, 27)                      \
  TSM_SPLIT(20, 28) TSM_SPLIT(21, 29) TSM_SPLIT(22, 30) TSM_SPLIT(23, 31)                      \
  TSM_ONE(0, 24, i) TSM_ONE(1, 25, i) TSM_ONE(2, 26, i) TSM_ONE(3, 27, i)                      \
  TSM_ONE(4, 28, i) TSM_ONE(5, 29, i) TSM_ONE(6, 30, i) TSM_ONE(7, 31, i)                      \
  TSM_ONE(0, 16, j) TSM_ONE(1, 17, j) TSM_ONE(2, 18, j) TSM_ONE(3, 19, j)                      \
  TSM_ONE(4, 20, j) TSM_ONE(5, 21, j) TSM_ONE(6, 22, j) TSM_ONE(7, 23, j)
#define TSM_BFLOAT16 TSM_PAIR(0, 1, 0) TSM_PAIR(2, 3, 64)
#define TSM_ROW(Kind, P, step, body)                                                           \
  template <>                                                                                  \
  struct RowTile<Kind> {                                                                       \
    static constexpr int kPanels = P;                                                          \
    template <class Extra>                                                                     \
    static void run(const Extra&, int64_t, const void* w, const char* x, int64_t groups,       \
                    int64_t times, const float* from, float* to) {                             \
      const void *at, *v = nullptr;                                                            \
      int64_t left;                                                                            \
      asm volatile(                                                                            \
          "movi v9.4s, #0\n"                                                                   \
          "1: ldp q0, q1, [%[from]]\n ldp q2, q3, [%[from], #32]\n"                            \
          ".if " #P " > 1\n ldp q4, q5, [%[from], #64]\n ldp q6, q7, [%[from], #96]\n"         \
          "add %[v], %[w], %[groups], lsl #6\n .endif\n"                                       \
          "add %[from], %[from], #64*" #P "\n mov %[at], %[x]\n mov %[left], %[groups]\n"       \
          "2: ldr q8, [%[at]], #16\n" body                                                     \
          "add %[w], %[w], #64*" #step "\n add %[v], %[v], #64*" #step "\n"                    \
          "subs %[left], %[left], #" #step "\n b.gt 2b\n"                                      \
          "stp q0, q1, [%[to]]\n stp q2, q3, [%[to], #32]\n"                                   \
          ".if " #P " > 1\n stp q4, q5, [%[to], #64]\n stp q6, q7, [%[to], #96]\n"             \
          "mov %[w], %[v]\n .endif\n"                                                         \
          "add %[to], %[to], #64*" #P "\n subs %[times], %[times], #1\n b.ne 1b\n"             \
          : [w] "+&r"(w), [times] "+&r"(times), [from] "+&r"(from), [to] "+&r"(to),            \
            [at] "=&r"(at), [v] "+&r"(v), [left] "=&r"(left)                                   \
          : [x] "r"(x), [groups] "r"(groups)                                                   \
          : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v16", "v17", "v18",   \
            "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29",       \
            "v30", "v31", "memory", "cc");                                                     \
    }                                                                                          \
  };
TSM_ROW(Float32, 1, 4, TSM_FLOAT32)
TSM_ROW(BFloat16, 2, 2, TSM_BFLOAT16)

#undef TSM_ROW
#undef TSM_BFLOAT16
#undef TSM_PAIR
#undef TSM_SPLIT
#undef TSM_FLOAT32
#undef TSM_INPUT
#undef TSM_LOADED
#undef TSM_ONE
#undef TSM_LINE
#undef TSM_SUM_TILE
#undef TSM_TILE
#undef TSM_LOOPS
#undef TSM_LOOP
#undef TSM_FETCH
#undef TSM_GROUP
#undef TSM_DOT3
#undef TSM_MADD3
#undef TSM_DOT2
#undef TSM_MADD2
#undef TSM_DOT1
#undef TSM_MADD1
#undef TSM_DOT0
#undef TSM_MADD0
#undef TSM_FACTORS
#undef TSM_STORE
#undef TSM_LOAD
#undef TSM_ROWS6
#undef TSM_ROWS5
#undef TSM_ROWS4
#undef TSM_ROWS3
#undef TSM_ROWS2
// clang-format on

}  // namespace
}  // namespace TSM_ISA_NAME
}  // namespace tsm
#endif
