#include "core/files/file_kind.h"

namespace tsm {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::string_view begins, what;
};
constexpr Kind kKinds[] = {
    {"PK\x03\x04"sv, "a zip archive, such as a PyTorch checkpoint, a TorchScript or a .pt2 file"sv},
    {"\x80\x02"sv, "a Python pickle, such as an old PyTorch checkpoint"sv},
    {"\x80\x03"sv, "a Python pickle"sv},
    {"\x80\x04"sv, "a Python pickle"sv},
    {"\x80\x05"sv, "a Python pickle"sv},
    {"tsmstate"sv, "the saved state of a stream"sv},
    {"version https://git-lfs"sv, "a Git LFS pointer (git lfs pull brings the file)"sv},
    {"\x89HDF"sv, "an HDF5 file"sv},
    {"\x93NUMPY"sv, "a numpy array"sv},
    {"GGUF"sv, "a GGUF file"sv},
    {"\x1f\x8b"sv, "a gzip archive"sv},
    {"\x7f"
     "ELF"sv,
     "a program or library"sv},
};

// The protobuf of an ONNX model begins with field 1, ir_version, followed by another field of the
// message.
bool is_onnx(std::string_view file) {
  constexpr std::string_view next = "\x12\x1a\x22\x28\x32\x3a\x42"sv;
  return file.size() > 3 && file[0] == '\x08' && file[1] > 0 && file[1] < 64 &&
         next.find(file[2]) != next.npos;
}

}  // namespace

std::string_view known_kind(std::string_view file) {
  for (const Kind& kind : kKinds) {
    if (file.substr(0, kind.begins.size()) == kind.begins) return kind.what;
  }
  return is_onnx(file) ? "an ONNX model"sv : std::string_view();
}

}  // namespace tsm
