#include "engine/text/review.h"

#include "core/unicode.h"

namespace tsm {
namespace {

constexpr std::u32string_view kNot = U"n't", kBreak = U"<br />";
constexpr std::u32string_view kClitics[] = {U"'s", U"'m", U"'d", U"'re", U"'ve", U"'ll"};
constexpr std::u32string_view kMarks = U".,!?;:()\"$%&*/-";

bool is_word(char32_t c) { return c == U'_' || unicode::is_alnum(c); }
bool is_letter(char32_t c) { return unicode::is_alnum(c) && !unicode::is_decimal(c); }

// Whether `part`, which ends with a letter, is at `at` and no word character follows it.
bool ends_with(std::u32string_view text, size_t at, std::u32string_view part) {
  if (text.substr(at, part.size()) != part) return false;
  const size_t end = at + part.size();
  return end == text.size() || !is_word(text[end]);
}

template <bool Fits(char32_t)>
size_t run(std::u32string_view text, size_t at) {
  while (at < text.size() && Fits(text[at])) ++at;
  return at;
}

// The end of the symbol that starts at `at`, or `at` if none starts there.
size_t symbol_end(std::u32string_view text, size_t at) {
  // A run of letters ends at the apostrophe of n't, so the word before n't is the run without its
  // last letter.
  const size_t letters = run<is_letter>(text, at);
  if (letters > at + 1 && ends_with(text, letters - 1, kNot)) return letters - 1;
  if (ends_with(text, at, kNot)) return at + kNot.size();
  for (const std::u32string_view clitic : kClitics) {
    if (ends_with(text, at, clitic)) return at + clitic.size();
  }
  const size_t word = run<unicode::is_alnum>(text, at);
  if (word > at) return word;
  return kMarks.find(text[at]) == kMarks.npos ? at : at + 1;
}

}  // namespace

std::vector<std::u32string_view> review_symbols(std::u32string_view clean) {
  std::vector<std::u32string_view> symbols;
  for (size_t at = 0; at < clean.size();) {
    const size_t end = symbol_end(clean, at);
    if (end > at) symbols.push_back(clean.substr(at, end - at));
    at = end > at ? end : at + 1;
  }
  return symbols;
}

std::u32string clean_review(std::u32string_view text) {
  const std::u32string low = unicode::lower(text);
  std::u32string clean;
  clean.reserve(low.size());
  for (size_t at = 0; at < low.size();) {
    const bool tag = low.compare(at, kBreak.size(), kBreak) == 0;
    clean += tag ? U' ' : low[at];
    at += tag ? kBreak.size() : 1;
  }
  return clean;
}

}  // namespace tsm
