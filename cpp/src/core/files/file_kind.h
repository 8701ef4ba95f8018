// Identifies a file that is not a .tsm file, for error messages.
#pragma once
#include <string_view>

namespace tsm {

// A description such as "a zip archive (...)", from the first bytes; empty if they are not
// recognized.
std::string_view known_kind(std::string_view file);

}  // namespace tsm
