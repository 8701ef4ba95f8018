// StreamPool in Python, and its events. The GIL is released in every call that may wait for more
// than the pool's lock; the pool's own thread never takes the GIL.
#include "engine/pool/pool.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "no_gil.h"
#include "objects.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

// Calls f() without the GIL.
template <class F>
auto without_gil(const F& f) {
  const NoGil no_gil;
  return f();
}

constexpr int64_t kLarge = 1 << 18;  // bytes: some 50 us to check and copy

// Calls f() with the GIL held: f only copies `bytes` of input and waits at most for the pool's
// lock, whereas after releasing the GIL it would have to wait for other threads to give it back. A
// large input is copied without the GIL. A pool that spills must release it here, because the spill
// function acquires it.
template <class Pool, class F>
auto briefly(const Pool& p, const F& f, int64_t bytes = 0) {
  return p.spills || bytes >= kLarge ? without_gil(f) : f();
}

std::string_view view_of(const py::bytes& bytes) {
  return {PyBytes_AS_STRING(bytes.ptr()), size_t(PyBytes_GET_SIZE(bytes.ptr()))};
}

class PyPool {
 public:
  PyPool(std::shared_ptr<PyModel> of, PoolOptions options, py::object spill_to)
      : owner(std::move(of)), spills(!spill_to.is_none()), spill(std::move(spill_to)) {
    if (!spill.is_none()) {
      options.spill = [this](std::string_view key, const std::vector<uint8_t>& blob,
                             int64_t position) {
        const py::gil_scoped_acquire gil;
        const py::object function = spill;
        require(!function.is_none(), "the pool is closed", ErrorKind::kClosed);
        function(py::bytes(key.data(), key.size()),
                 py::bytes(reinterpret_cast<const char*>(blob.data()), blob.size()), position);
      };
    }
    const std::shared_ptr<const Model> model = owner->model.share();
    pool = without_gil([&] { return std::make_unique<StreamPool>(model, options); });
  }
  ~PyPool() {
    without_gil([&] { pool.reset(); });
  }
  PyPool(const PyPool&) = delete;
  PyPool& operator=(const PyPool&) = delete;

  void close(bool drain) {
    without_gil([&] { pool->close(drain); });
    spill = py::none();  // it may refer to this pool
  }

  const std::shared_ptr<PyModel> owner;
  const bool spills;
  py::object spill;
  std::unique_ptr<StreamPool> pool;
};

// ---- events

struct PyEvent {
  uint64_t ticket;
  bool done;
  int64_t position;
  py::object error = py::none(), tokens = py::none(), logits = py::none(), log_probs = py::none(),
             blob = py::none();
};

// Copies the values into an array. pybind11's own copy does not check whether its allocation
// failed.
template <class T>
py::object copied(const std::vector<T>& values, const std::vector<ssize_t>& shape) {
  py::array_t<T> array(shape);
  if (!values.empty()) std::memcpy(array.mutable_data(), values.data(), values.size() * sizeof(T));
  return array;
}

PyEvent event_of(const PoolEvent& event, int64_t V) {
  PyEvent made{event.ticket, event.done, event.position};
  const bool failed = event.error != ErrorKind();
  if (failed) made.error = exception_of(Error(event.message, event.error));
  if (event.generated) made.tokens = copied(event.tokens, {ssize_t(event.tokens.size())});
  if (event.saved)
    made.blob = py::bytes(reinterpret_cast<const char*>(event.blob.data()), event.blob.size());
  if (failed) return made;
  if (event.scored) made.log_probs = copied(event.log_probs, {ssize_t(event.log_probs.size())});
  const auto rows = ssize_t(event.logits.size()) / ssize_t(V);
  if (event.logits_of == LogitsOf::kLast)
    made.logits = copied(event.logits, {ssize_t(V)});
  else if (event.logits_of == LogitsOf::kEach)
    made.logits = copied(event.logits, {rows, ssize_t(V)});
  return made;
}

py::list take(PyPool& p, int64_t most) {
  auto events = briefly(p, [&] { return p.pool->take(most, 0); });
  py::list list;
  try {
    for (const auto& event : events) list.append(event_of(*event, p.pool->model().output_size()));
  } catch (...) {  // out of memory: the next call returns them all again
    p.pool->put_back(std::move(events));
    throw;
  }
  for (auto& event : events) p.pool->give_back(std::move(event));
  return list;
}

// ---- requests

// The terms of a request; owns the memory that `terms` points to.
struct Asker {
  Asker(py::handle user, int priority, std::optional<double> timeout, bool save, bool wake,
        std::optional<int64_t> expected_position)
      : name(name_of(user)) {
    terms.user = name;
    terms.priority = priority;
    terms.has_timeout = timeout.has_value();
    terms.timeout = timeout.value_or(0);
    terms.save = save;
    terms.wake = wake;
    terms.has_expected_position = expected_position.has_value();
    terms.expected_position = expected_position.value_or(0);
  }
  static std::string name_of(py::handle user) {
    if (PyBytes_Check(user.ptr()))
      return std::string(view_of(py::reinterpret_borrow<py::bytes>(user)));
    if (!PyLong_Check(user.ptr()))
      throw Error(std::string("user is a ") + Py_TYPE(user.ptr())->tp_name +
                  "; accepted: an integer or bytes");
    return py::str(user).cast<std::string>();
  }

  const std::string name;
  Terms terms;
};

LogitsOf logits_named(const std::optional<std::string>& name) {
  if (!name) return LogitsOf::kNone;
  if (*name == "last") return LogitsOf::kLast;
  if (*name == "each") return LogitsOf::kEach;
  throw Error("logits = '" + *name + "'; accepted: None, 'last', 'each'");
}

uint64_t feed(PyPool& p, const py::bytes& key, py::handle x, py::handle dt,
              const std::optional<std::string>& logits, bool log_probs, bool save, py::handle user,
              int priority, std::optional<double> timeout, std::optional<int64_t> expected_position,
              bool wake) {
  const Model& model = p.pool->model();
  const Asker asker(user, priority, timeout, save, wake, expected_position);
  FeedRequest asked;
  TokenInput tokens;
  Input<float> values, times;
  if (model.takes_tokens()) {
    tokens = read_tokens(x, "x");
    asked.tokens = tokens.tokens;
    asked.steps = tokens.rows;
  } else {
    values = read_values(x, model.input_size(), "x");
    asked.values = values.data;
    asked.steps = values.rows;
  }
  times = read_dt(dt, asked.steps, "dt");
  asked.dt = times.data;
  asked.logits = logits_named(logits);
  asked.log_probs = log_probs;
  const int64_t step = model.takes_tokens() ? 8 : 4 * model.input_size();
  return briefly(
      p, [&] { return p.pool->feed(view_of(key), asked, asker.terms); }, step * asked.steps);
}

uint64_t generate(PyPool& p, const py::bytes& key, int64_t n, double temperature, int64_t top_k,
                  double top_p, py::handle seed, double dt, const std::vector<int64_t>& stop,
                  bool progress, bool save, py::handle user, int priority,
                  std::optional<double> timeout, std::optional<int64_t> expected_position,
                  bool wake) {
  const Asker asker(user, priority, timeout, save, wake, expected_position);
  GenerateRequest asked;
  asked.n = n;
  asked.sampling = {temperature, top_k, top_p, seed_of(seed)};
  asked.dt = float(dt);
  asked.stop = stop.data();
  asked.stop_count = int64_t(stop.size());
  asked.progress = progress;
  return briefly(p, [&] { return p.pool->generate(view_of(key), asked, asker.terms); });
}

// ---- the rest

void put(PyPool& p, const py::bytes& key, const py::buffer& blob) {
  const py::buffer_info bytes = row_of_bytes(blob);
  without_gil(
      [&] { p.pool->put(view_of(key), static_cast<const uint8_t*>(bytes.ptr), bytes.size); });
}

py::bytes save(PyPool& p, const py::bytes& key) {
  const auto blob = without_gil([&] { return p.pool->save(view_of(key)); });
  return py::bytes(reinterpret_cast<const char*>(blob.data()), blob.size());
}

py::dict stats(PyPool& p) {
  const PoolStats found = without_gil([&] { return p.pool->stats(); });
  py::dict named;
  named["requests"] = found.requests;
  named["refused"] = found.refused;
  named["finished"] = found.finished;
  named["failed"] = found.failed;
  named["cancelled"] = found.cancelled;
  named["deadline_misses"] = found.deadline_misses;
  named["fed_tokens"] = found.fed_tokens;
  named["generated_tokens"] = found.generated_tokens;
  named["queue"] = found.queue;
  named["events"] = found.events;
  named["streams"] = found.streams;
  named["spilled"] = found.spilled;
  named["dropped"] = found.dropped;
  named["batches"] = found.batches;
  named["batch_sizes"] =
      std::vector<int64_t>(std::begin(found.batch_sizes), std::end(found.batch_sizes));
  return named;
}

void bind_event(py::module_& m) {
  py::class_<PyEvent>(m, "PoolEvent", "The progress of a request to a StreamPool, or how it ended.")
      .def_readonly("ticket", &PyEvent::ticket)
      .def_property_readonly("kind", [](const PyEvent& e) { return e.done ? "done" : "progress"; })
      .def_readonly("error", &PyEvent::error,
                    "None, or a TsmError whose kind says how the request ended.")
      .def_readonly("position", &PyEvent::position, "The position of the stream, in steps.")
      .def_readonly("tokens", &PyEvent::tokens,
                    "The tokens of a generation, int64 [n]: new ones, or all when it is done.")
      .def_readonly("logits", &PyEvent::logits, "float32 [V], or [T, V]; None if not requested.")
      .def_readonly("log_probs", &PyEvent::log_probs, "float32 [T]; None if not requested.")
      .def_readonly("blob", &PyEvent::blob, "The state after the last step; None if not requested.")
      .def("__repr__", [](const PyEvent& e) {
        return "<tsm.runtime.PoolEvent: " + std::to_string(e.ticket) +
               (e.done ? e.error.is_none() ? ", done" : ", failed" : ", progress") + ", position " +
               std::to_string(e.position) + ">";
      });
}

}  // namespace

void bind_pool(py::module_& m) {
  bind_event(m);
  const auto none = py::none();
  const auto by_key = [](auto method) {
    return [method](PyPool& p, const py::bytes& key) {
      return briefly(p, [&] { return ((*p.pool).*method)(view_of(key)); });
    };
  };
  py::class_<PyPool>(m, "StreamPool",
                     "Streams by key behind one queue: requests of many users are computed "
                     "together, step by step.")
      .def(py::init([](std::shared_ptr<PyModel> model, int64_t max_queue, int64_t max_streams,
                       int64_t max_batch, int64_t prefill_steps, int64_t prefill_budget,
                       py::object spill) {
             PoolOptions options;
             options.max_queue = max_queue;
             options.max_streams = max_streams;
             options.max_batch = max_batch;
             options.prefill_steps = prefill_steps;
             options.prefill_budget = prefill_budget;
             return std::make_unique<PyPool>(std::move(model), std::move(options),
                                             std::move(spill));
           }),
           py::arg("model"), py::kw_only(), py::arg("max_queue") = 4096,
           py::arg("max_streams") = 65536, py::arg("max_batch") = 0, py::arg("prefill_steps") = 0,
           py::arg("prefill_budget") = 0, py::arg("spill") = none)
      .def("put", &put, py::arg("key"), py::arg("blob"),
           "Set the stream of that key to a saved state (from save_state or save).")
      .def("has", by_key(&StreamPool::has), py::arg("key"))
      .def("drop", by_key(&StreamPool::drop), py::arg("key"),
           "Remove the stream; returns False if the key is unknown.")
      .def(
          "fork",
          [](PyPool& p, const py::bytes& key, const py::bytes& new_key) {
            without_gil([&] { p.pool->fork(view_of(key), view_of(new_key)); });
          },
          py::arg("key"), py::arg("new_key"), "Copy the stream to a new, unknown key.")
      .def("reset", by_key(&StreamPool::reset), py::arg("key"), "Go back to position 0.")
      .def("save", &save, py::arg("key"), "The state of the stream, as from Stream.save_state.")
      .def("position", by_key(&StreamPool::position), py::arg("key"), "The number of steps fed.")
      .def("feed", &feed, py::arg("key"), py::arg("x"), py::arg("dt") = none,
           py::arg("logits") = none, py::arg("log_probs") = false, py::arg("save") = false,
           py::arg("user") = 0, py::arg("priority") = 0, py::arg("timeout") = none,
           py::arg("expected_position") = none, py::arg("wake") = true,
           "Queue tokens [T] or float32 values [T, I] for the stream of that key; an unknown key\n"
           "begins a stream at position 0. Returns a ticket, which the request's events carry.\n"
           "logits: None, 'last' or 'each'. user: an integer or bytes; users get equal shares.\n"
           "priority: 0 to 3, higher first. timeout: in seconds. expected_position: the position\n"
           "the stream must have when the request begins, otherwise it fails ('bad state').\n"
           "wake=False: the request may wait for wake(), together with others.\n"
           "After a TsmError of kind 'full', try again once events have been taken.")
      .def("generate", &generate, py::arg("key"), py::arg("n"), py::arg("temperature") = 1.0,
           py::arg("top_k") = 0, py::arg("top_p") = 1.0, py::arg("seed") = 0, py::arg("dt") = 1.0,
           py::arg("stop") = py::tuple(), py::arg("progress") = false, py::arg("save") = false,
           py::arg("user") = 0, py::arg("priority") = 0, py::arg("timeout") = none,
           py::arg("expected_position") = none, py::arg("wake") = true,
           "Queue the generation of n tokens, or up to the first token in `stop`, drawn as by\n"
           "Stream.generate. progress: events report tokens as they are drawn. The other\n"
           "arguments are those of feed.")
      .def(
          "wake",
          [](PyPool& p, double seconds) {
            return without_gil([&] { return p.pool->wake(seconds); });
          },
          py::arg("seconds") = 0.0,
          "Begin requests that were made with wake=False. A step that should take at most so many\n"
          "seconds runs on this thread, which costs less than waking another: whether it did.")
      .def(
          "cancel",
          [](PyPool& p, uint64_t ticket) {
            return without_gil([&] { return p.pool->cancel(ticket); });
          },
          py::arg("ticket"),
          "Cancel a request; returns False if it has finished. Its last event still arrives.")
      .def(
          "wait_room",
          [](PyPool& p, std::optional<double> timeout) {
            return without_gil([&] { return p.pool->wait_room(timeout.value_or(-1)); });
          },
          py::arg("timeout") = none, "Wait until the queue has room; returns whether it has.")
      .def(
          "fileno", [](PyPool& p) { return p.pool->fd(); },
          "A file descriptor that is readable while events are waiting.")
      .def("take", &take, py::arg("max") = 256, "The waiting events, at most `max` of them.")
      .def("stats", &stats, "Counters since the pool was created, and its current load.")
      .def("close", &PyPool::close, py::arg("drain") = true,
           "Refuse new requests. With drain, pending requests are finished first; otherwise they\n"
           "end with 'closed'. Afterwards events can still be taken and states saved.")
      .def_property_readonly("closed", [](PyPool& p) { return p.pool->closed(); })
      .def_property_readonly("model", [](const PyPool& p) { return p.owner; })
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](PyPool& p, const py::args&) { p.close(false); });
  for (const char* name : {"PoolEvent", "StreamPool"})
    m.attr(name).attr("__module__") = "tsm.runtime";
}

}  // namespace tsm::bindings
