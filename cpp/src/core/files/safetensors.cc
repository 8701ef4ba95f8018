#include "core/files/safetensors.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/files/file_kind.h"
#include "core/files/json.h"

namespace tsm {
namespace {

constexpr int64_t kMostTensors = 1 << 16, kMostDimensions = 8;
constexpr int64_t kMostSize = int64_t(1) << 48;  // of a dimension, of a file

struct Known {
  const char* name;
  ElementType type;
  int64_t bytes;
};
constexpr Known kTypes[] = {{"F32", ElementType::kFloat32, 4},
                            {"BF16", ElementType::kBFloat16, 2},
                            {"I8", ElementType::kInt8, 1},
                            {"U8", ElementType::kUInt8, 1}};

[[noreturn]] void fail(const MappedFile& file, const std::string& what) {
  throw Error(file.name() + ": " + what, ErrorKind::kBadFile);
}

uint64_t little_endian(const uint8_t* p) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | p[i];
  return value;
}

const Known& type_of(const JsonField& field) {
  const std::string& name = field.string({"F32", "BF16", "I8", "U8"});
  for (const Known& known : kTypes) {
    if (name == known.name) return known;
  }
  field.fail("F32, BF16, I8, U8");
}

// Reads one tensor of the header; its bytes must be inside `data` [size].
Tensor read_tensor(const JsonField& field, const uint8_t* data, int64_t size) {
  field.only({"dtype", "shape", "data_offsets"});
  const Known& known = type_of(field["dtype"]);
  Tensor tensor{known.type, {}, nullptr, known.bytes};
  const JsonField shape = field["shape"];
  const int64_t dimensions = shape.size(0, kMostDimensions);
  for (int64_t i = 0; i < dimensions; ++i) {
    const int64_t width = shape.at(i).integer(0, kMostSize);
    tensor.shape.push_back(width);
    if (__builtin_mul_overflow(tensor.bytes, width, &tensor.bytes) || tensor.bytes > kMostSize) {
      shape.fail("a product that a file can hold");
    }
  }
  const JsonField offsets = field["data_offsets"];
  offsets.size(2, 2);
  const int64_t begin = offsets.at(0).integer(0, kMostSize);
  const int64_t end = offsets.at(1).integer(begin, kMostSize);
  if (end > size) {
    offsets.at(1).fail("at most " + std::to_string(size) +
                       ", where the file ends (is it a complete .tsm file?)");
  }
  if (end - begin != tensor.bytes) {
    offsets.fail(std::to_string(tensor.bytes) + " bytes, which " + known.name + " " +
                 shown(tensor.shape) + " has, and not " + std::to_string(end - begin));
  }
  tensor.data = data + begin;
  if (reinterpret_cast<uintptr_t>(tensor.data) % uint64_t(known.bytes) != 0) {
    offsets.at(0).fail("a multiple of the element's size, counted from the start of the file");
  }
  return tensor;
}

}  // namespace

const char* name_of(ElementType type) {
  for (const Known& known : kTypes) {
    if (known.type == type) return known.name;
  }
  return "?";
}

std::string shown(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

SafeTensors::SafeTensors(const MappedFile& file) {
  if (file.size() < 8) {
    fail(file, "has " + std::to_string(file.size()) + " bytes; a safetensors file has more than 8");
  }
  if (reinterpret_cast<uintptr_t>(file.data()) % 8 != 0) {
    throw Error(file.name() + ": data is not at an 8-byte boundary");
  }
  const uint64_t header = little_endian(file.data());
  if (header > uint64_t(kMostHeader) || header > uint64_t(file.size() - 8)) {
    const std::string_view all(reinterpret_cast<const char*>(file.data()), size_t(file.size()));
    if (const std::string_view kind = known_kind(all); !kind.empty())
      fail(file, "it is " + std::string(kind) +
                     "; accepted: a .tsm file, which `tsm-export tsm` makes from a checkpoint");
    fail(file, "the header's length is " + std::to_string(header) + "; accepted: at most " +
                   std::to_string(std::min(kMostHeader, file.size() - 8)) +
                   " (is it a complete .tsm file?)");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header);
  const JsonValue root = parse_json(text, file.name());
  const JsonField top(root, file.name());
  const uint8_t* data = file.data() + 8 + header;
  const int64_t size = file.size() - 8 - int64_t(header);
  std::vector<std::pair<const uint8_t*, const uint8_t*>> spans;
  for (const auto& [name, value] : top.members(kMostTensors)) {
    const JsonField field(value, file.name() + ": " + quoted(name));
    if (name == "__metadata__") {
      for (const auto& [key, entry] : field.members(kMostTensors)) {
        metadata_.emplace(key, JsonField(entry, file.name() + ": __metadata__").string());
      }
      continue;
    }
    const Tensor tensor = read_tensor(field, data, size);
    spans.emplace_back(tensor.data, tensor.data + tensor.bytes);
    tensors_.emplace(name, tensor);
  }
  std::sort(spans.begin(), spans.end());
  const uint8_t* end = data;
  for (const auto& [first, last] : spans) {
    if (first != end) {
      fail(file, "data_offsets " + std::to_string(std::min(first, end) - data) + " to " +
                     std::to_string(std::max(first, end) - data) +
                     (first < end ? " belong to two tensors" : " belong to no tensor"));
    }
    end = last;
  }
  if (end != data + size) {
    fail(file, "has " + std::to_string(data + size - end) + " bytes after its last tensor");
  }
}

const Tensor* SafeTensors::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const std::string* SafeTensors::metadata(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

}  // namespace tsm
