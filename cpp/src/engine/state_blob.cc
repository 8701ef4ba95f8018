#include "engine/state_blob.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/files/crc32.h"
#include "core/finite.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "blobs and model files are little-endian; swap the bytes here first"
#endif

namespace tsm {
namespace {

constexpr char kMagic[9] = "tsmstate";
constexpr uint32_t kVersion = 1;
constexpr int64_t kHeader = 40;
constexpr int64_t kLastPosition = int64_t(1) << 62;

template <class T>
void put(uint8_t* at, const T& value) {
  std::memcpy(at, &value, sizeof value);
}

template <class T>
T get(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error("state: " + what, ErrorKind::kBadState);
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

int64_t floats_of(const StateParts& parts) {
  int64_t total = 0;
  for (const StatePart& part : parts) total += part.width;
  return total;
}

void write_state(const StateHeader& header, const float* states, const StateParts& parts,
                 uint8_t* blob) {
  const int64_t floats = floats_of(parts);
  std::memcpy(blob, kMagic, 8);
  put(blob + 8, kVersion);
  put(blob + 12, uint32_t(floats));
  put(blob + 16, header.fingerprint);
  put(blob + 24, header.position);
  put(blob + 32, header.time);
  uint8_t* at = blob + kHeader;
  for (const StatePart& part : parts) {
    std::memcpy(at, states + part.at, size_t(part.width) * 4);
    at += part.width * 4;
  }
  put(at, crc32(blob, at - blob));
}

// Messages are built only on errors: building one takes longer than reading the state.
StateHeader read_state(const uint8_t* blob, int64_t bytes, uint64_t fingerprint,
                       const StateParts& parts, float* states) {
  if (!blob || bytes < kHeader + 4 || std::memcmp(blob, kMagic, 8) != 0) {
    refuse(std::to_string(bytes) + " bytes that do not start like a saved state");
  }
  if (const auto version = get<uint32_t>(blob + 8); version != kVersion) {
    refuse("version is " + std::to_string(version) + "; accepted: " + std::to_string(kVersion));
  }
  const auto model = get<uint64_t>(blob + 16);
  if (model != fingerprint) {
    refuse("it was saved by the model " + hex(model) + "; accepted: by this one, " +
           hex(fingerprint));
  }
  const int64_t floats = floats_of(parts);
  const int64_t wanted = state_blob_bytes(floats);
  if (const auto stated = get<uint32_t>(blob + 12); stated != uint64_t(floats) || bytes != wanted) {
    refuse("it has " + std::to_string(bytes) + " bytes and states " + std::to_string(stated) +
           " floats; accepted: " + std::to_string(wanted) + " bytes, " + std::to_string(floats) +
           " floats");
  }
  if (get<uint32_t>(blob + wanted - 4) != crc32(blob, wanted - 4)) {
    refuse("its checksum is wrong: the bytes were damaged");
  }
  const StateHeader header{model, get<int64_t>(blob + 24), get<double>(blob + 32)};
  if (header.position < 0 || header.position > kLastPosition) {
    refuse("position is " + std::to_string(header.position) + "; accepted: 0 to 2^62");
  }
  if (!std::isfinite(header.time) || header.time < 0) {
    refuse("time is " + std::to_string(header.time) + "; accepted: finite, 0 or more");
  }
  if (!floats_finite(blob + kHeader, floats)) {
    int64_t i = 0;
    while (i < floats - 1 && std::isfinite(get<float>(blob + kHeader + 4 * i))) ++i;
    refuse("number " + std::to_string(i) + " is not finite");
  }
  const uint8_t* at = blob + kHeader;
  for (const StatePart& part : parts) {
    std::memcpy(states + part.at, at, size_t(part.width) * 4);
    at += part.width * 4;
  }
  return header;
}

}  // namespace tsm
