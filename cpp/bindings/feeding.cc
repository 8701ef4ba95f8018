// Calls that advance streams: feed, score and generate, for one stream or many at once.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "cancel.h"
#include "engine/feed.h"
#include "objects.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

// ---- one stream

// The input of one stream, with the objects that keep its memory alive.
struct Fed {
  std::shared_ptr<Stream> stream;
  TokenInput tokens;
  Input<float> values, dt;
  py::object result;
  Chunk chunk;
};

struct Wish {
  bool last_only = false, log_probs = false;
};

void prepare(Fed& fed, PyStream& s, py::handle x, py::handle dt, Wish wish, py::handle out,
             const Name& x_name, const Name& dt_name, const Name& out_name) {
  fed.stream = s.stream.share();
  const Model& model = fed.stream->model();
  Chunk& chunk = fed.chunk;
  if (model.takes_tokens()) {
    fed.tokens = read_tokens(x, x_name);
    chunk.tokens = fed.tokens.tokens;
    chunk.steps = fed.tokens.rows;
  } else {
    fed.values = read_values(x, model.input_size(), x_name);
    chunk.values = fed.values.data;
    chunk.steps = fed.values.rows;
  }
  fed.dt = read_dt(dt, chunk.steps, dt_name);
  chunk.dt = fed.dt.data;
  if (wish.log_probs) {
    require(!wish.last_only, "last_only and log_probs of the same chunk; accepted: one of them");
    require(model.family() == Family::kLanguageModel, "log_probs needs a language model");
    chunk.scores = result_array(out, -1, chunk.steps, out_name, fed.result);
  } else {
    chunk.last_only = wish.last_only;
    chunk.logits = result_array(out, wish.last_only ? -1 : chunk.steps, model.output_size(),
                                out_name, fed.result);
  }
  chunk.stream = fed.stream.get();
}

py::object feed(PyStream& s, py::handle x, py::handle dt, bool last_only, py::handle out,
                py::handle cancel) {
  Fed fed;
  prepare(fed, s, x, dt, {last_only, false}, out, "x", "dt", "out");
  compute(cancel,
          [&](Cancel* ends) { fed.stream->model().feed(&fed.chunk, 1, {ends, nullptr, true}); });
  return std::move(fed.result);
}

// The arguments of feed in the order of its signature; null: not given.
std::array<PyObject*, 5> in_order(PyObject* const* args, size_t count, PyObject* names) {
  constexpr std::array kNames = {"x", "dt", "last_only", "out", "cancel"};
  std::array<PyObject*, kNames.size()> all = {};
  if (count >= all.size()) throw py::type_error("feed() takes at most 4 positional arguments");
  std::copy_n(args, count, all.begin());
  for (Py_ssize_t k = 0; names && k < PyTuple_GET_SIZE(names); ++k) {
    PyObject* const name = PyTuple_GET_ITEM(names, k);
    size_t i = 0;
    while (i < all.size() && PyUnicode_CompareWithASCIIString(name, kNames[i]) != 0) ++i;
    if (i == all.size() || all[i])
      throw py::type_error("feed() got an unknown or repeated argument " +
                           py::repr(name).cast<std::string>());
    all[i] = args[count + size_t(k)];
  }
  if (!all[0]) throw py::type_error("feed() is missing its argument x");
  return all;
}

// Stream.feed in Python's own calling convention, because a call may be a single step: pybind11's
// takes 1 to 3 µs longer, mostly to make strings of the argument names.
PyObject* feed_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  try {
    const auto [x, dt, last_only, out, cancel] = in_order(args, size_t(count), names);
    const auto or_none = [](PyObject* given) { return given ? given : Py_None; };
    py::detail::make_caster<bool> last;
    if (!last.load(last_only ? last_only : Py_False, true))
      throw py::type_error(std::string("last_only is a ") + Py_TYPE(last_only)->tp_name +
                           "; accepted: a bool");
    return feed(py::cast<PyStream&>(py::handle(self)), x, or_none(dt), last, or_none(out),
                or_none(cancel))
        .release()
        .ptr();
  } catch (...) {
    set_error();
    return nullptr;
  }
}

PyMethodDef feed_definition = {
    "feed", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(feed_method)),
    METH_FASTCALL | METH_KEYWORDS,
    "feed($self, /, x, dt=None, last_only=False, out=None, *, cancel=None)\n--\n\n"
    "Feed tokens [T] or float32 values [T, I]; returns logits, float32 [T, V]. With\n"
    "last_only, only [V] of the last step (of the current state if T = 0). dt: [T] or one\n"
    "number; None means 1. out: an array to write to, which is then returned. cancel: a\n"
    "Cancel that ends the call. A signal whose handler raises (Ctrl-C) also ends it. In\n"
    "both cases the stream is unchanged."};

py::array_t<float> score(PyStream& s, py::handle tokens, py::handle dt, py::handle cancel) {
  const std::shared_ptr<Stream> stream = s.stream.share();
  const TokenInput in = read_tokens(tokens, "tokens");
  const Input<float> times = read_dt(dt, in.rows, "dt");
  py::array_t<float> out(in.rows);
  float* const log_probs = out.mutable_data();
  compute(cancel, [&](Cancel* ends) {
    stream->model().score(*stream, in.tokens, in.rows, times.data, log_probs, ends);
  });
  return out;
}

}  // namespace

uint64_t seed_of(py::handle seed) {
  constexpr const char* kAccepted = "; accepted: an integer, 0 to 2^64 - 1";
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(seed.ptr()));
  if (!number) {
    PyErr_Clear();
    throw Error(std::string("seed is a ") + Py_TYPE(seed.ptr())->tp_name + kAccepted);
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(number.ptr());
  if (value == std::numeric_limits<unsigned long long>::max() && PyErr_Occurred()) {
    PyErr_Clear();
    throw Error("seed = " + py::str(number).cast<std::string>() + kAccepted);
  }
  return value;
}

namespace {

// Allocates an array of n tokens for `item` to fill.
py::array_t<int64_t> room_for(int64_t n, Generation& item) {
  require(n >= 0, "n = " + std::to_string(n) + "; accepted: 0 or more");
  try {
    py::array_t<int64_t> out(n);
    item.n = n;
    item.tokens = out.mutable_data();
    return out;
  } catch (const py::error_already_set& error) {  // from numpy's allocation
    if (!error.matches(PyExc_MemoryError) && !error.matches(PyExc_ValueError)) throw;
    throw Error("n = " + std::to_string(n) + "; accepted: as many as there is memory for");
  }
}

py::array_t<int64_t> generate(PyStream& s, int64_t n, double temperature, int64_t top_k,
                              double top_p, py::handle seed, double dt, py::handle cancel) {
  const std::shared_ptr<Stream> stream = s.stream.share();
  Generation item{stream.get(), 0, {temperature, top_k, top_p, seed_of(seed)}, float(dt), nullptr};
  py::array_t<int64_t> out = room_for(n, item);
  compute(cancel, [&](Cancel* ends) { stream->model().generate(&item, 1, {ends, nullptr, true}); });
  return out;
}

// ---- many streams

bool is_sequence(py::handle object) {
  return PySequence_Check(object.ptr()) && !PyUnicode_Check(object.ptr());
}

// An array without dimensions has the methods of a sequence, but no length.
bool has_length(py::handle sequence) {
  if (PySequence_Size(sequence.ptr()) >= 0) return true;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
  PyErr_Clear();
  return false;
}

py::list list_of(py::handle sequence, const char* name) {
  if (!is_sequence(sequence))
    throw Error(std::string(name) + " is a " + Py_TYPE(sequence.ptr())->tp_name +
                "; accepted: a sequence");
  PyObject* const list = PySequence_List(sequence.ptr());
  if (!list) throw py::error_already_set();
  return py::reinterpret_steal<py::list>(list);
}

py::list list_of_length(py::handle sequence, size_t count, const char* name) {
  py::list list = list_of(sequence, name);
  require(list.size() == count, std::string(name) + " has " + std::to_string(list.size()) +
                                    " entries; accepted: one per stream, " + std::to_string(count));
  return list;
}

// A per-stream setting, given as one value for all streams or as a sequence with one per stream.
class Setting {
 public:
  Setting(py::handle given, size_t count, const char* name) : name_(name), all_(given) {
    if (is_sequence(given) && has_length(given)) each_ = list_of_length(given, count, name);
  }
  py::handle at(size_t i) const {
    return each_ ? PyList_GET_ITEM(each_.ptr(), Py_ssize_t(i)) : all_.ptr();
  }
  template <class T>
  T get(size_t i, const char* accepted) const {
    py::detail::make_caster<T> number;
    if (number.load(at(i), !std::is_same_v<T, bool>)) return py::detail::cast_op<T>(number);
    const std::string place = each_ ? "[" + std::to_string(i) + "]" : "";
    throw Error(name_ + place + " is a " + Py_TYPE(at(i).ptr())->tp_name +
                "; accepted: " + accepted + ", or one per stream");
  }

 private:
  std::string name_;
  py::handle all_;
  py::object each_;  // a list
};

// One call on many streams: the inputs, the errors and the list of results.
class Many {
 public:
  Many(const PyModel& m, py::handle streams, const std::string& errors)
      : model_(m.model.share()),
        streams_(list_of(streams, "streams")),
        collects_(errors == "return") {
    require(collects_ || errors == "raise", "errors = '" + errors + "'; accepted: raise, return");
  }
  size_t count() const { return streams_.size(); }
  const Model& model() const { return *model_; }

  // Calls f(i, stream i) for each stream; errors are reported for chunk i.
  template <class F>
  void each(const F& f) {
    for (size_t i = 0; i < count(); ++i) {
      accepted(call(nullptr), int64_t(i), [&] {
        try {
          f(i, stream(i));
        } catch (Error& error) {
          error.chunk = int64_t(i);
          throw;
        }
      });
    }
  }
  Call call(Cancel* ends) { return {ends, collects_ ? &failures_ : nullptr, false}; }

  // A list with result(i) for each chunk i, or the error of that chunk.
  template <class F>
  py::list results(const F& result) const {
    std::vector<py::object> failed(failures_.empty() ? 0 : count());
    for (const Failure& failure : failures_) {
      if (failed[size_t(failure.chunk)]) continue;  // the first error counts
      Error error(failure.message, failure.kind);
      error.chunk = failure.chunk;
      failed[size_t(failure.chunk)] = exception_of(error);
    }
    py::list list(count());
    for (size_t i = 0; i < count(); ++i)
      list[i] = failed.empty() || !failed[i] ? py::object(result(i)) : failed[i];
    return list;
  }

 private:
  PyStream& stream(size_t i) {
    const py::handle given = PyList_GET_ITEM(streams_.ptr(), Py_ssize_t(i));
    const Name place("streams", int64_t(i));
    if (!stream_.load(given, false))
      throw Error(place.str() + " is a " + Py_TYPE(given.ptr())->tp_name + "; accepted: Stream");
    PyStream& s = py::detail::cast_op<PyStream&>(stream_);
    if (&s.model() != model_.get())
      throw Error(place.str() + " belongs to another model; accepted: streams of this model");
    return s;
  }

  const std::shared_ptr<const Model> model_;
  const py::list streams_;
  const bool collects_;
  py::detail::make_caster<PyStream> stream_;  // one for all, because creating it looks up the type
  std::vector<Failure> failures_;
};

py::list feed_many(const PyModel& m, py::handle streams, py::handle chunks, py::handle dts,
                   py::handle last_only, py::handle outs, py::handle log_probs,
                   const std::string& errors, py::handle cancel) {
  Many many(m, streams, errors);
  const size_t count = many.count();
  const py::list xs = list_of_length(chunks, count, "chunks");
  const py::list times = dts.is_none() ? py::list() : list_of_length(dts, count, "dts");
  const py::list rooms = outs.is_none() ? py::list() : list_of_length(outs, count, "out");
  const Setting last(last_only, count, "last_only"), scored(log_probs, count, "log_probs");
  std::vector<Fed> fed(count);
  many.each([&](size_t i, PyStream& s) {
    const auto at = [&](const py::list& list) {
      return py::handle(list.empty() ? Py_None : PyList_GET_ITEM(list.ptr(), Py_ssize_t(i)));
    };
    const Wish wish{last.get<bool>(i, "a bool"), scored.get<bool>(i, "a bool")};
    const auto number = int64_t(i);
    prepare(fed[i], s, at(xs), at(times), wish, at(rooms), {"chunks", number}, {"dts", number},
            {"out", number});
  });
  std::vector<Chunk> batch(count);  // refused chunks have no stream and fail again
  for (size_t i = 0; i < count; ++i) batch[i] = fed[i].chunk;
  compute(cancel,
          [&](Cancel* ends) { many.model().feed(batch.data(), int64_t(count), many.call(ends)); });
  return many.results([&](size_t i) { return std::move(fed[i].result); });
}

py::list generate_many(const PyModel& m, py::handle streams, py::handle n, py::handle temperature,
                       py::handle top_k, py::handle top_p, py::handle seed, py::handle dt,
                       const std::string& errors, py::handle cancel) {
  Many many(m, streams, errors);
  const size_t count = many.count();
  const Setting lengths(n, count, "n"), temperatures(temperature, count, "temperature"),
      most(top_k, count, "top_k"), portions(top_p, count, "top_p"), seeds(seed, count, "seed"),
      times(dt, count, "dt");
  std::vector<Generation> items(count);
  std::vector<std::shared_ptr<Stream>> shares(count);
  std::vector<py::object> results(count);
  many.each([&](size_t i, PyStream& s) {
    Generation item;
    item.sampling = {temperatures.get<double>(i, "a number"), most.get<int64_t>(i, "an integer"),
                     portions.get<double>(i, "a number"), seed_of(seeds.at(i))};
    item.dt = float(times.get<double>(i, "a number"));
    results[i] = room_for(lengths.get<int64_t>(i, "an integer"), item);
    shares[i] = s.stream.share();
    item.stream = shares[i].get();
    items[i] = item;
  });
  compute(cancel, [&](Cancel* ends) {
    many.model().generate(items.data(), int64_t(count), many.call(ends));
  });
  return many.results([&](size_t i) { return std::move(results[i]); });
}

}  // namespace

void bind_feeding(ModelClass& model, StreamClass& stream) {
  const auto none = py::none();
  model
      .def(
          "feed_many", &feed_many, py::arg("streams"), py::arg("chunks"), py::arg("dts") = none,
          py::arg("last_only") = false, py::arg("out") = none, py::kw_only(),
          py::arg("log_probs") = false, py::arg("errors") = "raise", py::arg("cancel") = none,
          "Feed chunks[i] to streams[i], all at once; chunks may differ in length. Returns a list\n"
          "of what feed returns for each or, with log_probs, what score returns. last_only and\n"
          "log_probs: one value for all, or one per stream. out: an array or None for each; the\n"
          "arrays must not overlap. All chunks are checked before the first is fed.\n"
          "errors=\"raise\": a bad chunk fails the whole call (TsmError.chunk says which).\n"
          "errors=\"return\": the list contains a TsmError for each bad chunk, whose stream is\n"
          "unchanged, and the others are fed.")
      .def("generate_many", &generate_many, py::arg("streams"), py::arg("n"),
           py::arg("temperature") = 1.0, py::arg("top_k") = 0, py::arg("top_p") = 1.0,
           py::arg("seed") = 0, py::arg("dt") = 1.0, py::kw_only(), py::arg("errors") = "raise",
           py::arg("cancel") = none,
           "Draw tokens for all streams at once; returns a list of what generate returns for\n"
           "each. Every setting is one value for all streams, or a sequence with one per stream.\n"
           "errors: as in feed_many.");
  auto* const type = reinterpret_cast<PyTypeObject*>(stream.ptr());
  const auto method = py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, &feed_definition));
  if (!method) throw py::error_already_set();
  stream.attr("feed") = method;
  stream
      .def("score", &score, py::arg("tokens"), py::arg("dt") = none, py::kw_only(),
           py::arg("cancel") = none,
           "Feed tokens [T]; returns log p(token | all before it), float32 [T], starting from the\n"
           "current state.")
      .def(
          "generate", &generate, py::arg("n"), py::arg("temperature") = 1.0, py::arg("top_k") = 0,
          py::arg("top_p") = 1.0, py::arg("seed") = 0, py::arg("dt") = 1.0, py::kw_only(),
          py::arg("cancel") = none,
          "Draw n tokens and feed each one before drawing the next; returns int64 [n].\n"
          "temperature 0: always the most probable token; top_k 0: all tokens. Drawing n and then\n"
          "m tokens gives the same tokens as drawing n + m.");
}

}  // namespace tsm::bindings
