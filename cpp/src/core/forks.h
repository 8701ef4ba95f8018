// How often this process was forked off: a child has none of its parent's threads, and what they
// had locked stays locked.
#pragma once

namespace tsm {

void count_forks();  // from now on; std::bad_alloc where the system cannot
int forks() noexcept;

}  // namespace tsm
