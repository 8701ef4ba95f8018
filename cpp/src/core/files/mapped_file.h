// The bytes of a file, mapped read-only into memory.
#pragma once
#include <cstdint>
#include <string>

namespace tsm {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws tsm::Error (kBadFile) if `path` is not a readable regular file.
  static MappedFile open(const std::string& path);
  // A view of the caller's bytes as a file called `name`.
  static MappedFile view(const void* data, int64_t size, const std::string& name);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  const std::string& name() const { return name_; }

 private:
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
  bool mapped_ = false;
  std::string name_;
};

}  // namespace tsm
