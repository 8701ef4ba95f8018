// The checksum of a model file covers all of it: whichever bit is flipped, the file is refused.
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files/file_checksum.h"
#include "engine/model.h"
#include "support/check.h"
#include "support/model_bytes.h"

namespace {

using tsm::ErrorKind;
using tsm::Model;

// The error message; empty if the file is accepted.
std::string refusal(const void* file, int64_t bytes) {
  try {
    Model::from_memory(file, bytes, "f", {});
  } catch (const tsm::Error& error) {
    CHECK(error.kind == ErrorKind::kBadFile);
    return error.what();
  }
  return {};
}

sample::Writer small_file(const char* dtype) {
  sample::Spec spec;
  spec.H = 3;
  spec.V = 4;
  spec.I = 2;
  spec.layers = 1;
  spec.dtype = dtype;
  sample::Writer writer(spec);
  writer.all["text.dict"] = {"U8", {3}, "a 1"};
  return writer;
}

void test_every_bit(const char* dtype) {
  const sample::Writer writer = small_file(dtype);
  auto words = writer.file();
  auto* file = reinterpret_cast<uint8_t*>(words.data());
  CHECK(refusal(file, writer.size).empty());
  int64_t accepted = 0;
  for (int64_t bit = 0; bit < 8 * writer.size; ++bit) {
    const auto mask = uint8_t(1 << bit % 8);
    file[bit / 8] ^= mask;
    if (refusal(file, writer.size).empty()) {
      std::fprintf(stderr, "accepted with bit %d of byte %d flipped\n", int(bit % 8), int(bit / 8));
      ++accepted;
    }
    file[bit / 8] ^= mask;
  }
  CHECK(accepted == 0);
  std::printf("%s: %d bytes, each of the bits flipped\n", dtype, int(writer.size));
}

// Changes of several bits that could hide the fact that the file has a checksum.
TEST_CASE("switching off") {
  const sample::Writer writer = small_file("F32");
  const auto words = writer.file();
  const std::string good(reinterpret_cast<const char*>(words.data()), size_t(writer.size));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    const size_t at = bytes.find(from);
    CHECK((at != std::string::npos && from.size() == to.size()));
    bytes.replace(at, from.size(), to);
    std::vector<uint64_t> aligned(bytes.size() / 8 + 1);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    return refusal(aligned.data(), int64_t(bytes.size()));
  };
  const auto found = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(found(changed("checksum", "Checksum"), "does not begin with its checksum"));
  CHECK(found(changed("\"format\\\":2", "\"format\\\":1"), "format is 1, which has no checksum"));
  CHECK(found(changed("text.dict", "text.dicu"), "it is damaged: its checksum is"));
  CHECK(found(changed("\"checksum\":\"", "\"checksum\": "), "JSON"));
}

}  // namespace

TEST_CASE("every bit") {
  for (const char* dtype : {"F32", "BF16", "I8"}) test_every_bit(dtype);
}
