// The caller's tokens: integers of 64, 32 or 16 bits.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tsm {

enum class TokenType { kInt64 = 0, kInt32 = 1, kUint16 = 2 };

class Tokens {
 private:
  // f(pointer of the right type).
  template <class F>
  auto visit(const F& f) const {
    if (type_ == TokenType::kInt32) return f(static_cast<const int32_t*>(data_));
    if (type_ == TokenType::kUint16) return f(static_cast<const uint16_t*>(data_));
    return f(static_cast<const int64_t*>(data_));
  }

 public:
  Tokens() = default;
  Tokens(std::nullptr_t) {}
  Tokens(const int64_t* data) : data_(data) {}
  Tokens(const int32_t* data) : data_(data), type_(TokenType::kInt32) {}
  Tokens(const uint16_t* data) : data_(data), type_(TokenType::kUint16) {}
  Tokens(const void* data, TokenType type) : data_(data), type_(type) {}

  const void* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }
  size_t bytes_each() const {
    return visit([](const auto* p) { return sizeof(*p); });
  }

  int64_t operator[](int64_t i) const {
    return visit([i](const auto* p) { return read(p, i); });
  }
  // For use as an index: another thread may have changed the token since it was checked. A token
  // outside the vocabulary counts as 0.
  int64_t below(int64_t vocab_size, int64_t i) const {
    const int64_t token = (*this)[i];
    return uint64_t(token) < uint64_t(vocab_size) ? token : 0;
  }
  bool all_below(int64_t vocab_size, int64_t count) const {
    return visit([=](const auto* p) {
      bool all = true;  // no early exit, so that the loop vectorises
      for (int64_t i = 0; i < count; ++i) all &= uint64_t(int64_t(p[i])) < uint64_t(vocab_size);
      return all;
    });
  }

 private:
  // Reads once, so that the value compared is the value used.
  template <class T>
  static int64_t read(const T* p, int64_t i) {
    return *static_cast<const volatile T*>(p + i);
  }

  const void* data_ = nullptr;
  TokenType type_ = TokenType::kInt64;
};

}  // namespace tsm
