#include "engine/text/text.h"

#include <algorithm>

#include "core/error.h"
#include "core/files/json.h"
#include "core/unicode.h"
#include "core/utf8.h"
#include "engine/text/review.h"

namespace tsm {
namespace {

constexpr std::string_view kEnd = "<eos>";

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string made;
  made.reserve(text.size());
  for (size_t at; (at = text.find(from)) != text.npos; text.remove_prefix(at + from.size()))
    made.append(text, 0, at).append(to);
  return made.append(text);
}

// Calls word(...) for each word and newline() for each newline of a text, in order. Words are
// separated by white space, as in str.split.
template <class Word, class Newline>
void split(std::string_view text, const Word& word, const Newline& newline) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    const char32_t code = unicode::next_code_point(text, at);
    if (!unicode::is_space(code)) continue;
    if (here > begin) word(text.substr(begin, here - begin));
    if (code == U'\n') newline();
    begin = at;
  }
  if (begin < text.size()) word(text.substr(begin));
}

std::u32string code_points(std::string_view text) {
  std::u32string codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) codes += unicode::next_code_point(text, at);
  return codes;
}

}  // namespace

Text::Kind Text::kind_named(std::string_view tokenizer) {
  if (tokenizer == "word") return Kind::kWord;
  if (tokenizer == "char") return Kind::kChar;
  if (tokenizer == "char_ptb") return Kind::kPtbChar;
  if (tokenizer == "review") return Kind::kReview;
  throw Error("the model's tokenizer is " + quoted(tokenizer) +
              "; accepted here: word, char, char_ptb, review" +
              (tokenizer == "sentencepiece"
                   ? " (give the asset text.sentencepiece to the sentencepiece library)"
                   : ""));
}

Text::Text(std::string_view tokenizer, std::string_view dictionary, int64_t tokens)
    : kind_(kind_named(tokenizer)), dictionary_(dictionary, "text.dict") {
  require(dictionary_.size() <= tokens,
          "text.dict has " + std::to_string(dictionary_.size()) + " symbols; accepted: at most " +
              std::to_string(tokens) + ", the model's tokens",
          ErrorKind::kBadFile);
}

std::vector<int64_t> Text::encode(std::string_view text) const {
  const size_t valid = utf8_prefix(text);
  require(valid == text.size(), "text is not UTF-8 at byte " + std::to_string(valid));
  std::vector<int64_t> tokens;
  switch (kind_) {
    case Kind::kWord:
      encode_words(text, tokens);
      break;
    case Kind::kChar:
      encode_characters(text, tokens);
      break;
    case Kind::kPtbChar:
      encode_ptb_characters(text, tokens);
      break;
    case Kind::kReview:
      encode_review(text, tokens);
      break;
  }
  return tokens;
}

void Text::encode_words(std::string_view text, std::vector<int64_t>& tokens) const {
  split(
      text, [&](std::string_view word) { tokens.push_back(dictionary_.id(word)); },
      [&] { tokens.push_back(dictionary_.id(kEnd)); });
}

void Text::encode_characters(std::string_view text, std::vector<int64_t>& tokens) const {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    unicode::next_code_point(text, at);
    tokens.push_back(dictionary_.id(text.substr(begin, at - begin)));
  }
}

void Text::encode_ptb_characters(std::string_view text, std::vector<int64_t>& tokens) const {
  bool inside = false;  // a line
  split(
      text,
      [&](std::string_view word) {
        if (inside) tokens.push_back(dictionary_.id("_"));
        encode_characters(word, tokens);
        inside = true;
      },
      [&] {
        tokens.push_back(dictionary_.id("\n"));
        inside = false;
      });
}

void Text::encode_review(std::string_view text, std::vector<int64_t>& tokens) const {
  const std::u32string clean = clean_review(code_points(text));
  std::string symbol;
  for (const std::u32string_view codes : review_symbols(clean)) {
    symbol.clear();
    for (const char32_t code : codes) append_utf8(code, symbol);
    tokens.push_back(dictionary_.id(symbol));
  }
}

std::string Text::decode(const int64_t* tokens, size_t count) const {
  const bool words = kind_ == Kind::kWord || kind_ == Kind::kReview;
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view symbol = dictionary_[tokens[i]];
    if (words && i > 0) text += ' ';
    text += kind_ == Kind::kWord && symbol == kEnd ? "\n" : symbol;
  }
  if (kind_ == Kind::kWord) text = replaced(replaced(text, " \n", "\n"), "\n ", "\n");
  if (kind_ == Kind::kPtbChar) std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace tsm
