#include "engine/text/dictionary.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/files/json.h"
#include "core/utf8.h"

namespace tsm {
namespace {

constexpr int64_t kMostDictionarySymbols = (int64_t(1) << 31) - 2;  // with room for a padding id
constexpr std::string_view kUnknown = "<unk>";

// Reads the text after "\u": {hex}, 1 to 6 lower-case digits. Returns its length, or 0.
size_t read_code(std::string_view text, unsigned& code) {
  if (text.empty() || text[0] != '{') return 0;
  code = 0;
  for (size_t i = 1; i < text.size() && i <= 7; ++i) {
    const char c = text[i];
    if (c == '}') return i > 1 ? i + 1 : 0;
    const bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
    if (!digit && !letter) return 0;
    code = code << 4 | unsigned(digit ? c - '0' : c - 'a' + 10);
  }
  return 0;
}

// Appends the unescaped symbol; returns false if a backslash does not start an escape.
bool unescape(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return false;
    switch (text[i]) {
      case '\\':
        out += '\\';
        break;
      case 's':
        out += ' ';
        break;
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case 'r':
        out += '\r';
        break;
      case 'u': {
        unsigned code = 0;
        const size_t length = read_code(text.substr(i + 1), code);
        if (length == 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
        append_utf8(code, out);
        i += length;
        break;
      }
      default:
        return false;
    }
  }
  return true;
}

// Whether the text is digits that fit in a signed 64-bit number.
bool is_count(std::string_view text) {
  if (text.empty() || text.size() > 19) return false;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
  }
  return text.size() < 19 || text <= "9223372036854775807";
}

}  // namespace

Dictionary::Dictionary(std::string_view file, const std::string& name) {
  const auto fail = [&](const std::string& what) { throw Error(name + what, ErrorKind::kBadFile); };
  const size_t valid = utf8_prefix(file);
  if (valid < file.size()) fail(": not UTF-8 at byte " + std::to_string(valid));
  if (file.empty() || file.back() != '\n')
    fail(": empty or cut short (the last line has no newline)");
  const int64_t lines = std::count(file.begin(), file.end(), '\n');
  if (lines > kMostDictionarySymbols)
    fail(": " + std::to_string(lines) + " symbols; accepted: 1 to " +
         std::to_string(kMostDictionarySymbols));
  text_.reserve(file.size());  // unescaping only shortens: no reallocation, views stay valid
  symbols_.reserve(size_t(lines));
  while (!file.empty()) {
    const std::string_view line = file.substr(0, file.find('\n'));
    file.remove_prefix(line.size() + 1);
    const size_t space = line.rfind(' ');
    const std::string where = ", line " + std::to_string(symbols_.size() + 1) + ": ";
    if (space == std::string_view::npos || space == 0 || !is_count(line.substr(space + 1)))
      fail(where + quoted(line) + "; accepted: `symbol count`");
    const size_t begin = text_.size();
    if (!unescape(line.substr(0, space), text_))
      fail(where + quoted(line) +
           " has an escape that is not one of \\\\ \\s \\n \\t \\r \\u{hex}");
    symbols_.push_back(std::string_view(text_).substr(begin));
  }
  sorted_.resize(symbols_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  std::sort(sorted_.begin(), sorted_.end(),
            [&](uint32_t a, uint32_t b) { return symbols_[a] < symbols_[b]; });
  for (size_t i = 1; i < sorted_.size(); ++i) {
    if (symbols_[sorted_[i - 1]] != symbols_[sorted_[i]]) continue;
    const auto [first, second] = std::minmax(sorted_[i - 1], sorted_[i]);
    fail(": symbol " + quoted(symbols_[first]) + " occurs twice, as ids " + std::to_string(first) +
         " and " + std::to_string(second));
  }
  unknown_ = find(kUnknown);
}

int64_t Dictionary::find(std::string_view symbol) const {
  const auto found =
      std::lower_bound(sorted_.begin(), sorted_.end(), symbol,
                       [&](uint32_t id, std::string_view s) { return symbols_[id] < s; });
  return found != sorted_.end() && symbols_[*found] == symbol ? int64_t(*found) : -1;
}

int64_t Dictionary::id(std::string_view symbol) const {
  const int64_t found = find(symbol);
  if (found >= 0) return found;
  if (unknown_ < 0)
    throw Error("symbol " + quoted(symbol) + " is not in the dictionary of " +
                std::to_string(size()) + " symbols, which has no <unk>");
  return unknown_;
}

std::string_view Dictionary::operator[](int64_t id) const {
  if (id < 0 || id >= size())
    throw Error("token id " + std::to_string(id) + " is not in the dictionary; accepted: 0 to " +
                std::to_string(size() - 1));
  return symbols_[size_t(id)];
}

}  // namespace tsm
