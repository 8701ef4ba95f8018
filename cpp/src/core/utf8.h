// Validates UTF-8, and encodes code points.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tsm {

// The length of the longest valid UTF-8 prefix: shortest forms only, no surrogates, nothing above
// U+10FFFF. It is the offset of the first invalid byte, or the size of the text.
inline size_t utf8_prefix(std::string_view text) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(text.data());
  const auto* p = begin;
  const auto* end = p + text.size();
  while (p < end) {
    if (*p < 0x80) {
      ++p;
      continue;
    }
    const int extra = *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;
    if (*p < 0xc2 || *p > 0xf4 || end - p <= extra) break;
    // The second byte's range excludes overlong forms, surrogates and code points above
    // U+10FFFF.
    const int low = *p == 0xe0 ? 0xa0 : *p == 0xf0 ? 0x90 : 0x80;
    const int high = *p == 0xed ? 0x9f : *p == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high) break;
    if (extra > 1 && (p[2] & 0xc0) != 0x80) break;
    if (extra > 2 && (p[3] & 0xc0) != 0x80) break;
    p += 1 + extra;
  }
  return size_t(p - begin);
}

inline bool is_utf8(std::string_view text) { return utf8_prefix(text) == text.size(); }

inline void append_utf8(unsigned code, std::string& out) {
  if (code < 0x80) {
    out += char(code);
  } else if (code < 0x800) {
    out += char(0xc0 | code >> 6);
    out += char(0x80 | (code & 63));
  } else if (code < 0x10000) {
    out += char(0xe0 | code >> 12);
    out += char(0x80 | (code >> 6 & 63));
    out += char(0x80 | (code & 63));
  } else {
    out += char(0xf0 | code >> 18);
    out += char(0x80 | (code >> 12 & 63));
    out += char(0x80 | (code >> 6 & 63));
    out += char(0x80 | (code & 63));
  }
}

}  // namespace tsm
