// Loads arbitrary state blobs: they must be accepted, or rejected with tsm::Error and the stream
// unchanged. If the first byte is odd, the right checksum is appended, so that the fuzzer gets past
// that check.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../../tests/cpp/support/model_bytes.h"
#include "core/error.h"
#include "core/files/crc32.h"
#include "engine/stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const sample::Writer writer({});
  static const auto bytes = writer.file();
  static const auto model = tsm::Model::from_memory(bytes.data(), writer.size, "fuzz", {});
  static const auto stream = model->create_stream();
  std::vector<uint8_t> blob(data + 1, data + size);
  if (data[0] % 2 && blob.size() >= 4) {
    const uint32_t crc = tsm::crc32(blob.data(), int64_t(blob.size()) - 4);
    std::memcpy(blob.data() + blob.size() - 4, &crc, 4);
  }
  const auto before = stream->save();
  try {
    stream->load(blob.data(), int64_t(blob.size()));
  } catch (const tsm::Error&) {
    if (stream->save() != before) std::abort();
    return 0;
  }
  if (stream->save() != blob) std::abort();  // an accepted state must round-trip exactly
  try {
    const int64_t tokens[2] = {0, 1};
    tsm::Chunk chunk;
    chunk.stream = stream.get();
    chunk.tokens = tokens;
    chunk.steps = 2;
    model->feed(&chunk, 1);
  } catch (const tsm::Error&) {  // finite, but so large that the next step overflows
  }
  return 0;
}
