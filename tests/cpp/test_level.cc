// Which level is used: the highest, or the one that TSM_ISA names.
#include <cstdlib>
#include <cstring>
#include <string>

#include "check.h"
#include "core/error.h"
#include "kernels/cpu/isa.h"

int main() {
  const tsm::Levels levels = tsm::host_levels();
  CHECK(levels.count >= 1 && std::strcmp((*levels.begin())->name, "scalar") == 0);
  std::string all;
  for (const tsm::Level* level : levels) {
    setenv("TSM_ISA", level->name, 1);
    CHECK(&tsm::active_level() == level);
    all += (all.empty() ? "" : ", ") + std::string(level->name);
  }
  for (const char* nothing : {"", "unset"}) {
    if (*nothing)
      unsetenv("TSM_ISA");
    else
      setenv("TSM_ISA", nothing, 1);
    CHECK(&tsm::active_level() == levels.begin()[levels.count - 1]);
  }
  setenv("TSM_ISA", "abacus", 1);
  std::string message;
  try {
    tsm::active_level();
  } catch (const tsm::Error& error) {
    message = error.what();
  }
  CHECK(message == "TSM_ISA = 'abacus'; accepted on this machine: " + all);
  std::printf("levels: %s\n", all.c_str());
  return check::result();
}
