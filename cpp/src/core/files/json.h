// JSON from untrusted files, read strictly and within limits into an immutable tree. Errors of the
// getters name the field (layers[0].hidden_size), its value and what is accepted.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tsm {

// Beyond what the standard forbids, these are refused: duplicate keys, integers beyond 64 bits,
// numbers outside the range of a double, bytes that are not UTF-8, and files that exceed these
// limits.
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
  int64_t integer = 0;  // kInteger: written without a fraction or exponent
  double number = 0;    // kNumber, and kInteger (rounded beyond 2^53)
  std::string string;
  std::vector<JsonValue> items;  // kArray
  std::vector<Member> members;   // kObject, in the file's order
  std::vector<uint32_t> by_key;  // kObject: indices of the members, sorted by key
  const JsonValue* find(std::string_view key) const;  // null if there is no such member
};

// Throws tsm::Error (kBadFile) with a message that starts with `where` and gives the byte offset.
JsonValue parse_json(std::string_view text, const std::string& where, const JsonLimits& = {});

// A value with its path. The tree must outlive it.
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
  JsonField operator[](std::string_view key) const;  // throws if it is missing
  const std::vector<JsonValue::Member>& members(int64_t most) const;
  void only(std::initializer_list<const char*> keys) const;  // throws on any other key

  // Throws: "WHERE: PATH is VALUE; accepted: ...".
  [[noreturn]] void fail(const std::string& accepted) const;

 private:
  JsonField child(const JsonValue& value, const std::string& step) const;
  const JsonValue& expect(JsonValue::Type type, const char* accepted) const;

  const JsonValue* value_;
  std::string where_, path_;
};

// Text from a file, made safe for a message: quoted, shortened, printable.
std::string quoted(std::string_view text);

}  // namespace tsm
