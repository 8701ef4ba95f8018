// A file descriptor that is readable as long as something waits, for poll, epoll and event loops.
#pragma once

namespace tsm {

// An eventfd on Linux, a pipe elsewhere; non-blocking, closed in programs that exec starts. set and
// clear: by one thread at a time.
class ReadyFd {
 public:
  ReadyFd();  // tsm::Error where the process has no more descriptors
  ~ReadyFd();
  ReadyFd(const ReadyFd&) = delete;
  ReadyFd& operator=(const ReadyFd&) = delete;

  int fd() const { return read_; }
  void set() noexcept;
  void clear() noexcept;

 private:
  int read_ = -1, write_ = -1;
  bool is_set_ = false;
};

}  // namespace tsm
