// Identifies a file that is not a .tsm file, for error messages.
#pragma once
#include <string_view>

namespace tsm {

// "a zip archive (...)", from the first bytes; empty where they are not known.
std::string_view known_kind(std::string_view file);

}  // namespace tsm
