// Python can create an instance without running its constructor: Class.__new__(Class). With
// pybind11, methods would then use uninitialized memory. Here __new__ also runs the constructor.
#include "bindings.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

bool is_whole(PyObject* self) {
  py::detail::values_and_holders parts(reinterpret_cast<py::detail::instance*>(self));
  for (const auto& part : parts) {
    if (!part.holder_constructed()) return false;
  }
  return true;
}

// Works like type(args). A second __init__ by the caller does nothing.
PyObject* make_whole(PyTypeObject* type, PyObject* args, PyObject* named) {
  PyObject* const self = py::detail::make_new_instance(type);
  if (!self) return nullptr;
  if (type->tp_init(self, args, named) == 0) {
    if (is_whole(self)) return self;
    PyErr_Format(PyExc_TypeError, "%s.__init__ did not call its base class's __init__",
                 type->tp_name);
  }
  Py_DECREF(self);
  return nullptr;
}

}  // namespace

void refuse_halves(py::module_& m) {
  for (const auto& entry : py::dict(m.attr("__dict__"))) {
    if (!PyType_Check(entry.second.ptr())) continue;
    auto* const type = reinterpret_cast<PyTypeObject*>(entry.second.ptr());
    if (py::detail::get_type_info(type)) type->tp_new = make_whole;
  }
}

}  // namespace tsm::bindings
