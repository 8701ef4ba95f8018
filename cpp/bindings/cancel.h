// Ends a call from Python early, once any thread has set the call's Cancel, or a signal handler has
// raised an exception (Ctrl-C).
#pragma once
#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>

#include "core/cancel.h"
#include "no_gil.h"

namespace tsm::bindings {

class Interrupt : public Cancel {
 public:
  explicit Interrupt(const CancelFlag* flag);  // called with the GIL
  bool requested() override;                   // called without it
  bool raised() const { return raised_; }      // Python's error is set

 private:
  using Clock = std::chrono::steady_clock;
  const CancelFlag* flag_;
  bool has_signals_, raised_ = false;
  Clock::time_point next_;
};

// Null: None. Throws TypeError for any other object.
std::shared_ptr<CancelFlag> flag_of(pybind11::handle cancel);

// Calls f(cancel) without the GIL.
template <class F>
void compute(pybind11::handle cancel, const F& f) {
  const std::shared_ptr<CancelFlag> flag = flag_of(cancel);
  Interrupt interrupt(flag.get());
  try {
    const NoGil no_gil;
    f(&interrupt);
  } catch (const Error&) {
    if (interrupt.raised()) throw pybind11::error_already_set();
    throw;
  }
}

}  // namespace tsm::bindings
