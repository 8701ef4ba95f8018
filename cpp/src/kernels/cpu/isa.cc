// The instruction sets that this machine supports, and the choice among them.
#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/first_use.h"
#include "kernels/built_isas.h"
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tsm {

#define TSM_DECLARE(isa) \
  namespace isa {        \
  extern const Isa kIsa; \
  }
TSM_FOR_EACH_ISA(TSM_DECLARE)
#undef TSM_DECLARE

namespace {

#if defined(__x86_64__) && defined(__linux__)
// Whether AMX can be used: the processor has it, and the kernel saves its registers and lets this
// process use them.
bool allows_amx() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27))) return false;  // OSXSAVE
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kBFloat16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  if ((d & (kBFloat16 | kTile | kInt8)) != (kBFloat16 | kTile | kInt8)) return false;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  if ((low & kTileState) != kTileState) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

bool runs(const char* isa) {
  const auto is = [&](const char* name) { return std::strcmp(isa, name) == 0; };
  if (is("scalar")) return true;
#if defined(__aarch64__)
  if (is("neon")) return true;
#if defined(__linux__)
  constexpr unsigned long kDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  if (is("neon_dotprod")) return getauxval(AT_HWCAP) & kDotProduct;
#endif
#endif
#if defined(__x86_64__)
  // gcc and clang also check that the operating system saves the registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  if (is("avx2")) return avx2;
  if (is("avx512")) return avx512;
  if (is("avx512_vnni")) return vnni;
#if defined(__linux__)
  if (is("amx")) return vnni && __builtin_cpu_supports("avx512bf16") && allows_amx();
#endif
#endif
  return false;
}

struct Table {
  const Isa* isas[16];
  int count = 0;
  Table() {
#define TSM_ADD(isa) \
  if (runs(#isa)) isas[count++] = &isa::kIsa;
    TSM_FOR_EACH_ISA(TSM_ADD)
#undef TSM_ADD
  }
};

}  // namespace

Isas host_isas() {
  static FirstUse<const Table> table;
  const Table& found = table.get([] { return std::make_unique<const Table>(); });
  return {found.isas, found.count};
}

const Isa& active_isa() {
  const Isas isas = host_isas();
  const char* wish = std::getenv("TSM_ISA");
  if (!wish || !*wish) return *isas.begin()[isas.count - 1];
  std::string names;
  for (const Isa* isa : isas) {
    if (std::strcmp(isa->name, wish) == 0) return *isa;
    names += (names.empty() ? "" : ", ") + std::string(isa->name);
  }
  throw Error("TSM_ISA = '" + std::string(wish) + "'; accepted on this machine: " + names);
}

}  // namespace tsm
