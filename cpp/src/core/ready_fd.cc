#include "core/ready_fd.h"

#include <fcntl.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/eventfd.h>
#endif

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/error.h"

namespace tsm {
namespace {

[[noreturn]] void refuse() {
  throw Error(std::string("no file descriptor for events: ") + std::strerror(errno),
              ErrorKind::kInternal);
}

}  // namespace

ReadyFd::ReadyFd() {
#ifdef __linux__
  read_ = write_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (read_ < 0) refuse();
#else
  int ends[2];
  if (pipe(ends) != 0) refuse();
  read_ = ends[0];
  write_ = ends[1];
  for (const int end : ends) {
    fcntl(end, F_SETFL, O_NONBLOCK);
    fcntl(end, F_SETFD, FD_CLOEXEC);
  }
#endif
}

ReadyFd::~ReadyFd() {
  close(read_);
  if (write_ != read_) close(write_);
}

void ReadyFd::set() noexcept {
  if (is_set_) return;
  const uint64_t one = 1;
  is_set_ = write(write_, &one, sizeof one) == sizeof one;
}

void ReadyFd::clear() noexcept {
  if (!is_set_) return;
  uint64_t count;
  is_set_ = read(read_, &count, sizeof count) != sizeof count;
}

}  // namespace tsm
