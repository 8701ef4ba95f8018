// How a long call is cancelled: through a flag that another thread sets, or through any other class
// derived from Cancel.
#pragma once
#include <atomic>

#include "core/error.h"

namespace tsm {

class Cancel {
 public:
  virtual ~Cancel() = default;
  // Polled by the thread that made the call. Returns true to end the call.
  virtual bool requested() = 0;
};

inline void end_if_cancelled(Cancel* cancel) {
  if (!cancel || !cancel->requested()) return;
  throw Error("the call was cancelled; its streams are unchanged", ErrorKind::kCancelled);
}

class CancelFlag : public Cancel {
 public:
  void set(bool on) { on_.store(on, std::memory_order_relaxed); }  // by any thread
  bool is_set() const { return on_.load(std::memory_order_relaxed); }
  bool requested() override { return is_set(); }

 private:
  std::atomic<bool> on_{false};
};

}  // namespace tsm
