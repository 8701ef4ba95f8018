// Counts the forks that led to this process. A child has none of its parent's other threads, and
// locks that they held stay locked.
#pragma once

namespace tsm {

void count_forks();  // starts counting; std::bad_alloc if the system cannot
int forks() noexcept;

}  // namespace tsm
