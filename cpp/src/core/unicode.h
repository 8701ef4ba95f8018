// Code points and their classes as in Python's str, for the Unicode version of the tables.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "core/unicode_tables.h"

namespace tsm::unicode {

template <size_t N>
bool within(const Range (&table)[N], char32_t code) {
  const Range* found = std::lower_bound(std::begin(table), std::end(table), code,
                                        [](const Range& r, char32_t c) { return r.last < c; });
  return found != std::end(table) && found->first <= code;
}

inline bool is_space(char32_t code) { return within(kSpace, code); }      // str.isspace
inline bool is_alnum(char32_t code) { return within(kAlnum, code); }      // str.isalnum
inline bool is_decimal(char32_t code) { return within(kDecimal, code); }  // str.isdecimal

// The code point at `at` in valid UTF-8; moves `at` past it.
inline char32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&] { return static_cast<unsigned char>(text[at++]); };
  const unsigned first = byte();
  if (first < 0x80) return first;
  const int extra = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  char32_t code = first & (0x3fu >> extra);
  for (int i = 0; i < extra; ++i) code = code << 6 | (byte() & 0x3f);
  return code;
}

// str.lower of the whole text.
std::u32string lower(std::u32string_view text);

}  // namespace tsm::unicode
