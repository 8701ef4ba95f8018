#include "cancel.h"

#include "objects.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

// Checking for signals needs the GIL, which other threads may hold for some milliseconds.
constexpr std::chrono::milliseconds kBetweenLooks(50);

unsigned long main_thread = 0;  // Python handles signals on this thread

}  // namespace

Interrupt::Interrupt(const CancelFlag* flag)
    : flag_(flag),
      has_signals_(PyThread_get_thread_ident() == main_thread),
      next_(Clock::now() + kBetweenLooks) {}

bool Interrupt::requested() {
  if (flag_ && flag_->is_set()) return true;
  if (!has_signals_ || Clock::now() < next_) return false;
  const PyGILState_STATE gil = PyGILState_Ensure();
  raised_ = PyErr_CheckSignals() != 0;
  PyGILState_Release(gil);
  next_ = Clock::now() + kBetweenLooks;
  return raised_;
}

// Given None, pybind11 looks for the classes of other modules first, which takes 3 µs.
std::shared_ptr<CancelFlag> flag_of(py::handle cancel) {
  if (cancel.is_none()) return nullptr;
  py::detail::make_caster<std::shared_ptr<CancelFlag>> flag;
  if (!flag.load(cancel, false))
    throw py::type_error(std::string("cancel is a ") + Py_TYPE(cancel.ptr())->tp_name +
                         "; accepted: a Cancel or None");
  return py::detail::cast_op<std::shared_ptr<CancelFlag>>(flag);
}

void bind_cancel(py::module_& m) {
  main_thread =
      py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  py::class_<CancelFlag, std::shared_ptr<CancelFlag>>(
      m, "Cancel",
      "Ends the calls that it is passed to, from any thread: they raise TsmError of kind\n"
      "\"cancelled\", and their streams are unchanged. It stays set until it is cleared.")
      .def(py::init<>())
      .def("set", [](CancelFlag& flag) { flag.set(true); })
      .def("clear", [](CancelFlag& flag) { flag.set(false); })
      .def("is_set", &CancelFlag::is_set);
}

}  // namespace tsm::bindings
