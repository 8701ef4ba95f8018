// A file with a unique name that exists until the end of the block.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "check.h"

class TemporaryFile {
 public:
  TemporaryFile(const void* data, int64_t bytes) {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder ? folder : "/tmp") + "/tsm_model_XXXXXX";
    const int file = ::mkstemp(path_.data());
    CHECK((file >= 0 && ::write(file, data, size_t(bytes)) == bytes));
    ::close(file);
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
