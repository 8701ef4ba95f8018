// JSON from untrusted files: read strictly, within limits, into an
// immutable tree; getters whose errors name the place (layers[0].hidden_size), the value found and
// what is accepted.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tsm {

// Refused besides what the standard forbids: a key twice in one object, integers beyond 64
// bits, numbers beyond a double, bytes that are not UTF-8, deeper nesting and more values than
// here.
struct JsonLimits {
  int64_t bytes = 64 << 20;
  int64_t values = 1 << 20;
  int depth = 32;
};

struct JsonValue {
  enum class Type { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, JsonValue>;

  Type type = Type::kNull;
  bool boolean = false;
  int64_t integer = 0;  // kInteger: written without fraction and exponent
  double number = 0;    // kNumber, and kInteger (rounded beyond 2^53)
  std::string string;
  std::vector<JsonValue> items;  // kArray
  std::vector<Member> members;   // kObject, in the file's order
  std::vector<uint32_t> by_key;  // kObject: numbers of the members, sorted by key
  const JsonValue* find(std::string_view key) const;  // null: no such member
};

// tsm::Error (kBadFile), starting with `where`, that names the byte.
JsonValue parse_json(std::string_view text, const std::string& where, const JsonLimits& = {});

// A value with its path. It refers to the tree, which must outlive it.
class JsonField {
 public:
  JsonField(const JsonValue& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const JsonValue& value() const { return *value_; }
  const std::string& path() const { return path_; }

  bool is_null() const { return value_->type == JsonValue::Type::kNull; }
  bool boolean() const;
  int64_t integer(int64_t least, int64_t most) const;
  double number() const;  // finite
  const std::string& string() const;
  const std::string& string(std::initializer_list<const char*> accepted) const;

  // Arrays.
  int64_t size(int64_t least, int64_t most) const;
  JsonField at(int64_t i) const;

  // Objects.
  bool has(std::string_view key) const;
  JsonField operator[](std::string_view key) const;  // an error where it is missing
  const std::vector<JsonValue::Member>& members(int64_t most) const;
  void only(std::initializer_list<const char*> keys) const;  // an error for any other key

  // Throws: "WHERE: PATH is VALUE; accepted: ...".
  [[noreturn]] void fail(const std::string& accepted) const;

 private:
  JsonField child(const JsonValue& value, const std::string& step) const;
  const JsonValue& expect(JsonValue::Type type, const char* accepted) const;

  const JsonValue* value_;
  std::string where_, path_;
};

// Text from a file as it may stand in a message: quoted, short, printable.
std::string quoted(std::string_view text);

}  // namespace tsm
