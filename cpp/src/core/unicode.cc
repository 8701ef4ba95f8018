#include "core/unicode.h"

namespace tsm::unicode {
namespace {

constexpr char32_t kCapitalSigma = 0x3a3, kSigma = 0x3c3, kFinalSigma = 0x3c2;
constexpr char32_t kCapitalDottedI = 0x130, kDot = 0x307;

char32_t lower_of_one(char32_t code) {
  const LowerRun* found =
      std::lower_bound(std::begin(kLower), std::end(kLower), code,
                       [](const LowerRun& r, char32_t c) { return r.last < c; });
  if (found == std::end(kLower) || found->first > code) return code;
  return (code - found->first) % found->step ? code : char32_t(int32_t(code) + found->difference);
}

// Whether the sigma at `at` ends a word: there is a cased letter before it and none after it,
// ignoring case-ignorable code points.
bool is_final(std::u32string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && within(kCaseIgnorable, text[before - 1])) --before;
  if (before == 0 || !within(kCased, text[before - 1])) return false;
  size_t behind = at + 1;
  while (behind < text.size() && within(kCaseIgnorable, text[behind])) ++behind;
  return behind == text.size() || !within(kCased, text[behind]);
}

}  // namespace

std::u32string lower(std::u32string_view text) {
  std::u32string low;
  low.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t code = text[i];
    if (code == kCapitalSigma) {
      low += is_final(text, i) ? kFinalSigma : kSigma;
    } else if (code == kCapitalDottedI) {
      low += U'i';
      low += kDot;
    } else {
      low += lower_of_one(code);
    }
  }
  return low;
}

}  // namespace tsm::unicode
