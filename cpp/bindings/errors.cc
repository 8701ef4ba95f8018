// Translates tsm::Error into the Python exception TsmError, a ValueError with a `kind`.
#include "bindings.h"
#include "core/error.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      break;
    case ErrorKind::kBadFile:
      return "bad file";
    case ErrorKind::kBadState:
      return "bad state";
    case ErrorKind::kBusy:
      return "busy";
    case ErrorKind::kOutOfMemory:
      return "out of memory";
    case ErrorKind::kInternal:
      return "internal";
    case ErrorKind::kCancelled:
      return "cancelled";
    case ErrorKind::kFull:
      return "full";
    case ErrorKind::kDeadline:
      return "deadline";
    case ErrorKind::kClosed:
      return "closed";
  }
  return "invalid argument";
}

py::handle exception_type;  // lives as long as the interpreter

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    PyErr_SetObject(exception_type.ptr(), exception_of(error).ptr());
  }
}

}  // namespace

// A message may contain a file name that is not UTF-8, so it is decoded as Python decodes file
// names.
py::object text_of(const Error& error) {
  return py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefault(error.what()));
}

py::object exception_of(const Error& error) {
  py::object made = exception_type(text_of(error));
  made.attr("kind") = name_of(error.kind);
  if (error.chunk >= 0) made.attr("chunk") = error.chunk;
  return made;
}

void set_error() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const Error& error) {
    PyErr_SetObject(exception_type.ptr(), exception_of(error).ptr());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void bind_errors(py::module_& m) {
  py::object type = py::exception<Error>(m, "TsmError", PyExc_ValueError);
  type.attr("__module__") = "tsm.runtime";
  type.attr("__doc__") =
      "A call that tsm refuses: the message names the field, its value and what is accepted.";
  type.attr("kind") = "invalid argument";
  type.attr("chunk") = py::none();  // in a call on many streams: the index of the stream
  exception_type = type.release();
  py::register_local_exception_translator(&translate);
}

}  // namespace tsm::bindings
