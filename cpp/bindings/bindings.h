// The parts of the Python module tsm.runtime._core. Each function adds its names to the module.
#pragma once
#include <pybind11/pybind11.h>

namespace tsm {
class Error;
}

namespace tsm::bindings {

pybind11::object text_of(const Error& error);
pybind11::object exception_of(const Error& error);  // a TsmError
// Sets Python's error to the exception that is being handled, in a function not called by pybind11.
// What is no std::exception, such as the unwinding of a thread that Python ends, goes on.
void set_error();

void bind_errors(pybind11::module_& m);    // TsmError
void bind_training(pybind11::module_& m);  // the recurrence on raw addresses
void bind_launches(pybind11::module_& m);  // layers on a GPU, described once; only with CUDA
void bind_runtime(pybind11::module_& m);   // Model and Stream on numpy arrays
void bind_bench(pybind11::module_& m);     // the C++ side of tsm-bench
void refuse_halves(pybind11::module_& m);  // to be called after all classes are bound

}  // namespace tsm::bindings
