// The lifetime of Python's Model and Stream: close, `with`, copies and pickles. A pickle
// holds what tsm.runtime._reopen needs to recreate the object.
#include "objects.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

py::object reopen(const char* function) {
  return py::module_::import("tsm.runtime._reopen").attr(function);
}

py::tuple reduce_model(const py::object& self) {
  const auto of = [&](const char* name) { return self.attr(name); };
  return py::make_tuple(
      reopen("open_model"),
      py::make_tuple(of("path"), of("checksum"), of("device"), of("dtype"), of("threads")));
}

py::tuple reduce_stream(const py::object& self) {
  return py::make_tuple(reopen("open_stream"),
                        py::make_tuple(self.attr("model"), self.attr("save_state")()));
}

// Binds close and the context manager; __enter__ refuses a closed object.
template <class Class, class Close, class Held>
void bind_with(Class& type, const char* what, const Close& close, const Held& held) {
  type.def("close", close, what)
      .def_property_readonly(
          "closed", [held](const typename Class::type& self) { return held(self).closed(); })
      .def("__enter__",
           [held](const py::object& self) {
             held(self.cast<const typename Class::type&>()).share();
             return self;
           })
      .def("__exit__", [close](typename Class::type& self, const py::args&) { close(self); });
}

}  // namespace

void bind_lifetime(ModelClass& model, StreamClass& stream) {
  bind_with(
      model, "Free the model and its streams; they can no longer be used.",
      [](PyModel& m) { m.close(); },
      [](const PyModel& m) -> const Open<const Model>& { return m.model; });
  bind_with(
      stream, "Free the stream; it can no longer be used.",
      [](PyStream& s) { s.close("the stream is closed"); },
      [](const PyStream& s) -> const Open<Stream>& { return s.stream; });
  const auto itself = [](const py::object& self) { return self; };
  model.def_readonly("path", &PyModel::path, "The absolute path of the file.")
      .def("__copy__", itself)
      .def("__deepcopy__", [itself](const py::object& self, py::handle) { return itself(self); })
      .def("__reduce__", &reduce_model);
  const auto fork = [](const py::object& self) { return self.attr("fork")(); };
  stream.def("__copy__", fork)
      .def("__deepcopy__", [fork](const py::object& self, py::handle) { return fork(self); })
      .def("__reduce__", &reduce_stream);
}

}  // namespace tsm::bindings
