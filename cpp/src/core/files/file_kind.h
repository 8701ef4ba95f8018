// What a file is that is no .tsm file, so that a message can say it.
#pragma once
#include <string_view>

namespace tsm {

// "a zip archive (...)", from the first bytes; empty where they are not known.
std::string_view known_kind(std::string_view file);

}  // namespace tsm
