// A scope without the GIL.
#pragma once
#include <pybind11/pybind11.h>

#include <chrono>
#include <thread>

namespace tsm::bindings {

// Like pybind11::gil_scoped_release, but a daemon thread may be inside while Python exits. Before
// version 3.14, Python ends such a thread when it wants the GIL back, by unwinding its stack: C++
// would abort the process at the end of the scope. Here the thread waits for the end of the
// process, as it does in later versions.
class NoGil {
 public:
  NoGil() : state_(PyEval_SaveThread()) {}
  ~NoGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace tsm::bindings
