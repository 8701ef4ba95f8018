// Which instruction set is used: the highest, or the one that TSM_ISA names.
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/error.h"
#include "kernels/cpu/isa.h"
#include "support/check.h"

TEST_CASE("TSM_ISA chooses the level") {
  const tsm::Isas isas = tsm::host_isas();
  CHECK((isas.count >= 1 && std::strcmp((*isas.begin())->name, "scalar") == 0));
  std::string all;
  for (const tsm::Isa* isa : isas) {
    setenv("TSM_ISA", isa->name, 1);
    CHECK(&tsm::active_isa() == isa);
    all += (all.empty() ? "" : ", ") + std::string(isa->name);
  }
  for (const char* nothing : {"", "unset"}) {
    if (*nothing)
      unsetenv("TSM_ISA");
    else
      setenv("TSM_ISA", nothing, 1);
    CHECK(&tsm::active_isa() == isas.begin()[isas.count - 1]);
  }
  setenv("TSM_ISA", "abacus", 1);
  std::string message;
  try {
    tsm::active_isa();
  } catch (const tsm::Error& error) {
    message = error.what();
  }
  CHECK(message == "TSM_ISA = 'abacus'; accepted on this machine: " + all);
  std::printf("levels: %s\n", all.c_str());
}
