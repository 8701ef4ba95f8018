// The parts of tsm-bench inside the core: a loop that calls feed without Python, and the
// memory-read floor.
#include "bench/feed_loop.h"
#include "bench/read_floor.h"
#include "bindings.h"
#include "no_gil.h"

namespace py = pybind11;

namespace tsm::bindings {

void bind_bench(py::module_& m) {
  using bench::FeedLoop;
  using bench::ReadFloor;
  using no_gil = py::call_guard<NoGil>;
  py::class_<FeedLoop>(m, "FeedLoop", "Streams of a model, fed from C++ in a loop.")
      .def(py::init([](const std::string& path, const std::string& dtype, int threads,
                       int64_t streams, int64_t steps, const std::string& device, bool last_only) {
             return new FeedLoop(path, bench::options_of(dtype, threads, device), streams, steps,
                                 last_only);
           }),
           py::arg("path"), py::arg("dtype"), py::arg("threads"), py::arg("streams"),
           py::arg("steps"), py::arg("device") = "cpu", py::arg("last_only") = false)
      .def("run", &FeedLoop::run, py::arg("calls"), no_gil(), "Seconds for that many calls.")
      .def("run_pool", &FeedLoop::run_pool, py::arg("chunks"), no_gil(),
           "Seconds for that many chunks of each stream through a pool.")
      .def(
          "stream_bytes", [](const FeedLoop& loop) { return bench::stream_bytes(loop.model()); },
          "Bytes of one more stream, as reported by the allocator; 0 if it cannot tell.");
  py::class_<ReadFloor>(m, "ReadFloor", "Memory of the size of a layer's weights, to be read.")
      .def(py::init<int64_t, int64_t, int64_t>(), py::arg("input_bytes"),
           py::arg("recurrent_bytes"), py::arg("steps"))
      .def("run", &ReadFloor::run, py::arg("chunks"), no_gil(),
           "Seconds for that many chunks: each reads W once and U `steps` times.");
}

}  // namespace tsm::bindings
