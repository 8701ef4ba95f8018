// A safetensors file: a header that lists named tensors and some text, then the data.
//
// Files are read strictly: every offset, shape and size is checked. Tensors must follow each other
// without gaps, fill the data section, and be aligned to their element size.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/mapped_file.h"

namespace tsm {

enum class ElementType { kFloat32, kBFloat16, kInt8, kUInt8 };
const char* name_of(ElementType type);  // as in the file: "F32", "BF16", "I8", "U8"

struct Tensor {
  ElementType type;
  std::vector<int64_t> shape;
  const uint8_t* data;
  int64_t bytes;
};

std::string shown(const std::vector<int64_t>& shape);  // "[2, 3]"

class SafeTensors {
 public:
  static constexpr int64_t kMostHeader = 16 << 20;  // bytes

  // `file` must outlive this object, and its bytes must not move. Throws tsm::Error (kBadFile).
  explicit SafeTensors(const MappedFile& file);

  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;
  const std::string* metadata(std::string_view key) const;  // null: none

 private:
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

}  // namespace tsm
