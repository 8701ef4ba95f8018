#include "core/files/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#ifndef __cpp_lib_to_chars
#include <locale.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#include <cerrno>
#endif

#include "core/error.h"
#include "core/utf8.h"

namespace tsm {
namespace {

using Type = JsonValue::Type;

// Parses [first, last) as a double, whatever the locale; returns false if it is out of range.
bool read_double(const char* first, const char* last, double& value) {
#ifdef __cpp_lib_to_chars
  const auto read = std::from_chars(first, last, value);
  return read.ec == std::errc() && read.ptr == last;
#else  // libc++ before version 20
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string text(first, last);
  char* end = nullptr;
  errno = 0;
  value = strtod_l(text.c_str(), &end, plain);
  // ERANGE is also set for subnormal numbers, which fit.
  return end == text.c_str() + text.size() && std::isfinite(value) && (value != 0 || errno == 0);
#endif
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& where, const JsonLimits& limits)
      : text_(text), where_(where), limits_(limits) {}

  JsonValue document() {
    if (int64_t(text_.size()) > limits_.bytes) {
      fail("has " + std::to_string(text_.size()) + " bytes of JSON; accepted: at most " +
           std::to_string(limits_.bytes));
    }
    JsonValue value = any(0);
    blanks();
    if (at_ != text_.size()) unexpected("the end");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(where_ + ": " + what, ErrorKind::kBadFile);
  }
  [[noreturn]] void unexpected(const std::string& wanted) const {
    const std::string found =
        at_ < text_.size() ? quoted(text_.substr(at_, 12)) : std::string("the end");
    fail("JSON, byte " + std::to_string(at_) + ": found " + found + ", expected " + wanted);
  }

  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void blanks() {
    while (more() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }

  JsonValue any(int depth) {
    if (++values_ > limits_.values) {
      fail("has more JSON values than the limit of " + std::to_string(limits_.values));
    }
    if (depth > limits_.depth) {
      fail("nests JSON deeper than the limit of " + std::to_string(limits_.depth));
    }
    blanks();
    JsonValue value;
    switch (peek()) {
      case '{':
        object(value, depth);
        break;
      case '[':
        array(value, depth);
        break;
      case '"':
        value.type = Type::kString;
        value.string = string();
        break;
      case 't':
      case 'f':
        value.type = Type::kBool;
        value.boolean = peek() == 't';
        if (!word("true") && !word("false")) unexpected("true or false");
        break;
      case 'n':
        if (!word("null")) unexpected("null");
        break;
      default:
        number(value);
    }
    return value;
  }

  void array(JsonValue& value, int depth) {
    value.type = Type::kArray;
    take('[');
    blanks();
    if (take(']')) return;
    do {
      value.items.push_back(any(depth + 1));
      blanks();
    } while (take(','));
    if (!take(']')) unexpected("',' or ']'");
  }

  void object(JsonValue& value, int depth) {
    value.type = Type::kObject;
    take('{');
    blanks();
    if (take('}')) return;
    do {
      blanks();
      if (peek() != '"') unexpected("a key");
      std::string key = string();
      blanks();
      if (!take(':')) unexpected("':'");
      value.members.emplace_back(std::move(key), any(depth + 1));
      blanks();
    } while (take(','));
    if (!take('}')) unexpected("',' or '}'");
    index(value);
  }

  void index(JsonValue& value) const {
    const auto& members = value.members;
    auto& order = value.by_key;
    order.resize(members.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = uint32_t(i);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return members[a].first < members[b].first; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (members[order[i - 1]].first == members[order[i]].first) {
        fail("JSON has the key " + quoted(members[order[i]].first) + " twice in one object");
      }
    }
  }

  void digits() {
    if (peek() < '0' || peek() > '9') unexpected("a digit");
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  void number(JsonValue& value) {
    const size_t start = at_;
    take('-');
    if (peek() < '0' || peek() > '9') {
      at_ = start;
      unexpected("a value");
    }
    if (!take('0')) digits();
    bool whole = true;
    if (take('.')) {
      whole = false;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (!take('+')) take('-');
      digits();
    }
    const char* first = text_.data() + start;
    const char* last = text_.data() + at_;
    bool fits = read_double(first, last, value.number);
    value.type = whole ? Type::kInteger : Type::kNumber;
    if (whole) {
      const auto exact = std::from_chars(first, last, value.integer);
      fits = fits && exact.ec == std::errc() && exact.ptr == last;
    }
    if (!fits) {
      at_ = start;
      unexpected(whole ? "an integer of 64 bits" : "a number that fits a double");
    }
  }

  unsigned hex4() {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const bool digit = c >= '0' && c <= '9';
      const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!digit && !letter) unexpected("a hexadecimal digit");
      code = code * 16 + unsigned(digit ? c - '0' : (c | 32) - 'a' + 10);
    }
    return code;
  }

  void escape(std::string& out) {
    const char c = peek();
    ++at_;
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out += c;
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case 'n':
        out += '\n';
        return;
      case 'r':
        out += '\r';
        return;
      case 't':
        out += '\t';
        return;
      case 'u': {
        unsigned code = hex4();
        if (code >= 0xd800 && code < 0xdc00) {
          if (!word("\\u")) unexpected("the second half of a surrogate pair");
          const unsigned low = hex4();
          if (low < 0xdc00 || low > 0xdfff) unexpected("the second half of a surrogate pair");
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        } else if (code >= 0xdc00 && code < 0xe000) {
          unexpected("no lone half of a surrogate pair");
        }
        append_utf8(code, out);
        return;
      }
      default:
        --at_;
        unexpected("an escape: \" \\ / b f n r t u");
    }
  }

  std::string string() {
    take('"');
    std::string out;
    while (true) {
      // Copy runs of plain characters at once; most text consists of them.
      const size_t start = at_;
      while (more() && text_[at_] != '"' && text_[at_] != '\\' && uint8_t(text_[at_]) >= 0x20) {
        ++at_;
      }
      const std::string_view plain = text_.substr(start, at_ - start);
      if (!is_utf8(plain)) {
        at_ = start;
        unexpected("UTF-8");
      }
      out += plain;
      if (take('"')) return out;
      if (!take('\\')) unexpected("the end of a string");
      escape(out);
    }
  }

  const std::string_view text_;
  const std::string& where_;
  const JsonLimits limits_;
  size_t at_ = 0;
  int64_t values_ = 0;
};

std::string shown(const JsonValue& value) {
  switch (value.type) {
    case Type::kNull:
      return "null";
    case Type::kBool:
      return value.boolean ? "true" : "false";
    case Type::kInteger:
      return std::to_string(value.integer);
    case Type::kNumber: {
      char text[32];
      const auto end = std::to_chars(text, text + sizeof text, value.number).ptr;
      std::string number(text, end);
      if (number.find_first_of(".e") == std::string::npos) number += ".0";  // not an integer
      return number;
    }
    case Type::kString:
      return quoted(value.string);
    case Type::kArray:
      return "a list of " + std::to_string(value.items.size());
    case Type::kObject:
      break;
  }
  return "an object of " + std::to_string(value.members.size());
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto found = std::lower_bound(
      by_key.begin(), by_key.end(), key,
      [&](uint32_t i, std::string_view k) { return std::string_view(members[i].first) < k; });
  if (found == by_key.end() || members[*found].first != key) return nullptr;
  return &members[*found].second;
}

JsonValue parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  return Parser(text, where, limits).document();
}

void JsonField::fail(const std::string& accepted) const {
  throw Error(where_ + ": " + (path_.empty() ? "it" : path_) + " is " + shown(*value_) +
                  "; accepted: " + accepted,
              ErrorKind::kBadFile);
}

const JsonValue& JsonField::expect(Type type, const char* accepted) const {
  if (value_->type != type) fail(accepted);
  return *value_;
}

bool JsonField::boolean() const { return expect(Type::kBool, "true or false").boolean; }

int64_t JsonField::integer(int64_t least, int64_t most) const {
  if (value_->type != Type::kInteger || value_->integer < least || value_->integer > most) {
    fail("an integer from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value_->integer;
}

double JsonField::number() const {
  if (value_->type != Type::kInteger && value_->type != Type::kNumber) fail("a number");
  return value_->number;
}

const std::string& JsonField::string() const { return expect(Type::kString, "a string").string; }

const std::string& JsonField::string(std::initializer_list<const char*> accepted) const {
  std::string names;
  for (const char* name : accepted) {
    if (value_->type == Type::kString && value_->string == name) return value_->string;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  fail(names);
}

int64_t JsonField::size(int64_t least, int64_t most) const {
  const int64_t found = int64_t(value_->items.size());
  if (value_->type != Type::kArray || found < least || found > most) {
    fail("a list of " + std::to_string(least) +
         (least == most ? "" : " to " + std::to_string(most)) + " values");
  }
  return found;
}

JsonField JsonField::at(int64_t i) const {
  const auto& items = expect(Type::kArray, "a list").items;
  if (i < 0 || i >= int64_t(items.size())) fail("at least " + std::to_string(i + 1) + " values");
  return child(items[size_t(i)], "[" + std::to_string(i) + "]");
}

bool JsonField::has(std::string_view key) const {
  return expect(Type::kObject, "an object").find(key) != nullptr;
}

JsonField JsonField::operator[](std::string_view key) const {
  const JsonValue* found = expect(Type::kObject, "an object").find(key);
  if (!found) {
    throw Error(
        where_ + ": " + (path_.empty() ? "" : path_ + ".") + std::string(key) + " is missing",
        ErrorKind::kBadFile);
  }
  return child(*found, (path_.empty() ? "" : ".") + std::string(key));
}

const std::vector<JsonValue::Member>& JsonField::members(int64_t most) const {
  const auto& found = expect(Type::kObject, "an object").members;
  if (int64_t(found.size()) > most) fail("an object of at most " + std::to_string(most));
  return found;
}

void JsonField::only(std::initializer_list<const char*> keys) const {
  for (const auto& member : expect(Type::kObject, "an object").members) {
    const auto same = [&](const char* key) { return member.first == key; };
    if (std::any_of(keys.begin(), keys.end(), same)) continue;
    std::string names;
    for (const char* key : keys) names += (names.empty() ? "" : ", ") + std::string(key);
    throw Error(where_ + ": " + (path_.empty() ? "it" : path_) + " has the key " +
                    quoted(member.first) + "; accepted: " + names,
                ErrorKind::kBadFile);
  }
}

JsonField JsonField::child(const JsonValue& value, const std::string& step) const {
  JsonField field(value, where_);
  field.path_ = path_ + step;
  return field;
}

std::string quoted(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string out = "\"";
  for (const char c : text.substr(0, kMost)) {
    const bool printable = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
    static const char* hex = "0123456789abcdef";
    if (printable) {
      out += c;
    } else {
      out += {'\\', 'x', hex[uint8_t(c) >> 4], hex[uint8_t(c) & 15]};
    }
  }
  return out + (text.size() > kMost ? "\"..." : "\"");
}

}  // namespace tsm
