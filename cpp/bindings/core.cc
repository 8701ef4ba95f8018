// Python module tsm.runtime._core: the compiled core.
#include "bindings.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "Compiled core of tsm: streams on numpy arrays, and training on raw addresses.";
  m.attr("__version__") = TSM_VERSION;
  tsm::bindings::bind_errors(m);
  tsm::bindings::bind_training(m);
  tsm::bindings::bind_runtime(m);
  tsm::bindings::bind_bench(m);
  tsm::bindings::refuse_halves(m);
}
