// A file descriptor that is readable while something is waiting, for poll, epoll and event loops.
#pragma once

namespace tsm {

// An eventfd on Linux, a pipe elsewhere; non-blocking and close-on-exec. Only one thread at a time
// may call set and clear.
class ReadyFd {
 public:
  ReadyFd();  // throws tsm::Error if the process has no more descriptors
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
