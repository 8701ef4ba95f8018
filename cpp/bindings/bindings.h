// The parts of the Python module tsm.runtime._core; each adds its names to it.
#pragma once
#include <pybind11/pybind11.h>

namespace tsm {
class Error;
}

namespace tsm::bindings {

pybind11::object text_of(const Error& error);
pybind11::object exception_of(const Error& error);  // a TsmError

void bind_errors(pybind11::module_& m);    // TsmError
void bind_training(pybind11::module_& m);  // the recurrence on raw addresses
void bind_runtime(pybind11::module_& m);   // Model and Stream on numpy arrays
void bind_bench(pybind11::module_& m);     // what tsm-bench times in C++
void refuse_halves(pybind11::module_& m);  // of all classes of the module; once all are there

}  // namespace tsm::bindings
