#include "core/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "core/error.h"

namespace tsm {
namespace {

// Closes a file descriptor at the end of the scope.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(path + ": " + what, ErrorKind::kBadFile);
}

}  // namespace

MappedFile MappedFile::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) fail(path.c_str(), "the path has a zero byte here");
  // O_NONBLOCK: opening a pipe must not wait for a writer; pipes are refused below.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) fail(path, std::strerror(errno));
  struct stat facts;
  if (::fstat(file.number, &facts) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) fail(path, "is not a regular file");
  MappedFile result;
  result.name_ = path;
  if (facts.st_size == 0) return result;  // mmap refuses an empty range
  void* memory = ::mmap(nullptr, size_t(facts.st_size), PROT_READ, MAP_PRIVATE, file.number, 0);
  if (memory == MAP_FAILED && errno == ENOMEM) throw std::bad_alloc();
  if (memory == MAP_FAILED) fail(path, std::strerror(errno));
  result.data_ = static_cast<const uint8_t*>(memory);
  result.size_ = facts.st_size;
  result.mapped_ = true;
  ::madvise(memory, size_t(facts.st_size), MADV_WILLNEED);  // only a hint, may fail
  return result;
}

MappedFile MappedFile::view(const void* data, int64_t size, const std::string& name) {
  require(size >= 0 && (data || size == 0),
          "bytes = " + std::to_string(size) + "; accepted: 0 or more, with data");
  MappedFile result;
  result.data_ = static_cast<const uint8_t*>(data);
  result.size_ = size;
  result.name_ = name;
  return result;
}

MappedFile::~MappedFile() {
  if (mapped_) ::munmap(const_cast<uint8_t*>(data_), size_t(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(name_, other.name_);
  return *this;
}

}  // namespace tsm
