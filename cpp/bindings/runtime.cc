// Model and Stream in Python, on numpy arrays. The GIL is released while the engine computes, and
// while a device is waited for.
#include <pybind11/stl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>

#include "arrays.h"
#include "bindings.h"
#include "core/error.h"
#include "engine/feed.h"
#include "engine/model.h"
#include "engine/overlap.h"
#include "engine/stream.h"
#include "objects.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

// The stream for one reader, who must not see half of another thread's step.
class Read {
 public:
  explicit Read(std::shared_ptr<const Stream> stream) : stream_(std::move(stream)) {
    hold_.add(*stream_);
  }
  const Stream* operator->() const { return stream_.get(); }

 private:
  std::shared_ptr<const Stream> stream_;  // outlives the hold
  Hold hold_;
};

// ---- Model

Weights weights_named(const std::string& dtype) {
  if (dtype == "float32") return Weights::kFloat32;
  if (dtype == "bfloat16") return Weights::kBFloat16;
  if (dtype == "int8") return Weights::kInt8;
  throw Error("dtype = '" + dtype + "'; accepted: float32, bfloat16, int8");
}
const char* name_of(Weights weights) {
  if (weights == Weights::kInt8) return "int8";
  return weights == Weights::kBFloat16 ? "bfloat16" : "float32";
}
const char* name_of(DeviceKind device) { return device == DeviceKind::kCuda ? "cuda" : "cpu"; }
const char* name_of(Family family) {
  if (family == Family::kClassifier) return "classifier";
  return family == Family::kTagger ? "tagger" : "lm";
}

std::shared_ptr<PyModel> load(const py::object& path, const std::string& device,
                              const std::string& dtype, int threads) {
  require(device == "cpu" || device == "cuda", "device = '" + device + "'; accepted: cpu, cuda");
  PyObject* encoded = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &encoded)) throw py::error_already_set();
  const std::string file = py::reinterpret_steal<py::bytes>(encoded);
  LoadOptions options;
  options.weights = weights_named(dtype);
  options.threads = threads;
  options.device = device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  const py::object os = py::module_::import("os");
  const py::object absolute = os.attr("path").attr("abspath")(os.attr("fsdecode")(path));
  std::shared_ptr<const Model> made;
  bool there = true;
  try {
    py::gil_scoped_release no_gil;
    there = access(file.c_str(), F_OK) == 0 || errno != ENOENT;
    made = Model::load(file, options);
  } catch (const Error& error) {
    if (there || error.kind != ErrorKind::kBadFile) throw;
    PyErr_SetObject(PyExc_FileNotFoundError, text_of(error).ptr());
    throw py::error_already_set();
  }
  return std::make_shared<PyModel>(std::move(made), absolute);
}

std::string fingerprint(const PyModel& m) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(m.model->fingerprint()));
  return text;
}

py::object config(const PyModel& m) {
  const std::string_view text = m.model->config();
  return py::module_::import("json").attr("loads")(py::str(text.data(), text.size()));
}

py::object asset(const PyModel& m, const std::string& name) {
  const std::string_view bytes = m.model->asset(name);
  if (bytes.empty()) return py::none();
  return py::bytes(bytes.data(), bytes.size());
}

std::string describe(const PyModel& m) {
  if (m.model.closed()) return "<tsm.runtime.Model: closed>";
  const Model& model = *m.model;
  const LayerInfo& layer = model.layers().front();
  return "<tsm.runtime.Model: " + std::string(name_of(model.family())) + ", " +
         std::to_string(model.layers().size()) + " x " + layer.cell + " " +
         std::to_string(layer.hidden_size) + ", " + std::to_string(model.output_size()) +
         " outputs, " + name_of(model.weights()) + ", " + model.level() + ">";
}

std::unique_ptr<PyStream> create_stream(std::shared_ptr<PyModel> m) {
  const std::shared_ptr<const Model> model = m->model.share();
  std::unique_ptr<Stream> made;
  {
    py::gil_scoped_release no_gil;
    made = model->create_stream();
  }
  return std::make_unique<PyStream>(std::move(m), std::move(made));
}

// ---- Stream: feeding

// What one stream is fed, and what keeps the memory of it.
struct Fed {
  std::shared_ptr<Stream> stream;
  Input<int64_t> tokens;
  Input<float> values, dt;
  py::object result;
  Chunk chunk;
};

void prepare(Fed& fed, PyStream& s, py::handle x, py::handle dt, bool last_only, py::handle out,
             const char* x_name, const char* dt_name, const char* out_name) {
  fed.stream = s.stream.share();
  const Model& model = fed.stream->model();
  Chunk& chunk = fed.chunk;
  chunk.stream = fed.stream.get();
  if (model.takes_tokens()) {
    fed.tokens = read_tokens(x, x_name);
    chunk.tokens = fed.tokens.data;
    chunk.steps = fed.tokens.rows;
  } else {
    fed.values = read_values(x, model.input_size(), x_name);
    chunk.values = fed.values.data;
    chunk.steps = fed.values.rows;
  }
  if (!dt.is_none()) {
    fed.dt = read_dt(dt, chunk.steps, dt_name);
    // A dt for no step is still a dt: the engine decides whether the model takes one.
    static const float none = 1;
    chunk.dt = fed.dt.data ? fed.dt.data : &none;
  }
  chunk.last_only = last_only;
  chunk.logits =
      result_array(out, last_only ? -1 : chunk.steps, model.output_size(), out_name, fed.result);
}

py::object feed(PyStream& s, py::handle x, py::handle dt, bool last_only, py::handle out) {
  Fed fed;
  prepare(fed, s, x, dt, last_only, out, "x", "dt", "out");
  {
    py::gil_scoped_release no_gil;
    fed.stream->model().feed(&fed.chunk, 1);
  }
  return std::move(fed.result);
}

py::list list_of(py::handle sequence, const char* name) {
  if (!PySequence_Check(sequence.ptr()) || PyUnicode_Check(sequence.ptr()))
    throw Error(std::string(name) + " is a " + Py_TYPE(sequence.ptr())->tp_name +
                "; accepted: a sequence");
  PyObject* const list = PySequence_List(sequence.ptr());
  if (!list) throw py::error_already_set();
  return py::reinterpret_steal<py::list>(list);
}

py::list list_of_length(py::handle sequence, size_t count, const char* name) {
  py::list list = list_of(sequence, name);
  require(list.size() == count, std::string(name) + " has " + std::to_string(list.size()) +
                                    " entries; accepted: one a stream, " + std::to_string(count));
  return list;
}

py::list feed_many(const PyModel& m, py::handle streams, py::handle chunks, py::handle dts,
                   bool last_only, py::handle outs) {
  const std::shared_ptr<const Model> model = m.model.share();
  const py::list given = list_of(streams, "streams");
  const size_t count = given.size();
  const py::list xs = list_of_length(chunks, count, "chunks");
  const py::list times = dts.is_none() ? py::list() : list_of_length(dts, count, "dts");
  const py::list rooms = outs.is_none() ? py::list() : list_of_length(outs, count, "out");
  std::vector<Fed> fed(count);
  std::vector<Chunk> batch(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string place = "[" + std::to_string(i) + "]";
    if (!py::isinstance<PyStream>(given[i]))
      throw Error("streams" + place + " is a " + Py_TYPE(py::object(given[i]).ptr())->tp_name +
                  "; accepted: Stream");
    PyStream& s = py::cast<PyStream&>(given[i]);
    require(&s.model() == model.get(),
            "streams" + place + " is another model's; accepted: streams of this model");
    const py::object dt = times.empty() ? py::none() : py::object(times[i]);
    const py::object out = rooms.empty() ? py::none() : py::object(rooms[i]);
    prepare(fed[i], s, xs[i], dt, last_only, out, ("chunks" + place).c_str(),
            ("dts" + place).c_str(), ("out" + place).c_str());
    batch[i] = fed[i].chunk;
  }
  if (!rooms.empty()) {
    std::vector<OutputSpan> spans(2 * count);
    const Overlap found =
        find_overlap(batch.data(), int64_t(count), model->output_size(), spans.data());
    if (found.first >= 0)
      throw Error("out[" + std::to_string(found.first) + "] and out[" +
                  std::to_string(found.second) + "] overlap; accepted: memory of its own for each");
  }
  {
    py::gil_scoped_release no_gil;
    model->feed(batch.data(), int64_t(count));
  }
  py::list results(count);
  for (size_t i = 0; i < count; ++i) results[i] = std::move(fed[i].result);
  return results;
}

py::array_t<float> score(PyStream& s, py::handle tokens, py::handle dt) {
  const std::shared_ptr<Stream> stream = s.stream.share();
  const Input<int64_t> in = read_tokens(tokens, "tokens");
  const Input<float> times = read_dt(dt, in.rows, "dt");
  py::array_t<float> out(in.rows);
  float* const log_probs = out.mutable_data();
  {
    py::gil_scoped_release no_gil;
    stream->model().score(*stream, in.data, in.rows, times.data, log_probs);
  }
  return out;
}

uint64_t seed_of(py::handle seed) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(seed.ptr()));
  if (!number) throw py::error_already_set();
  const unsigned long long value = PyLong_AsUnsignedLongLong(number.ptr());
  if (value == std::numeric_limits<unsigned long long>::max() && PyErr_Occurred()) {
    PyErr_Clear();
    throw Error("seed = " + py::str(seed).cast<std::string>() + "; accepted: 0 to 2^64 - 1");
  }
  return value;
}

py::array_t<int64_t> generate(PyStream& s, int64_t n, double temperature, int64_t top_k,
                              double top_p, py::handle seed, double dt) {
  const std::shared_ptr<Stream> stream = s.stream.share();
  require(n >= 0, "n = " + std::to_string(n) + "; accepted: 0 or more");
  const Sampling sampling{temperature, top_k, top_p, seed_of(seed)};
  py::array_t<int64_t> out(n);
  int64_t* const tokens = out.mutable_data();
  {
    py::gil_scoped_release no_gil;
    stream->generate(n, sampling, tokens, float(dt));
  }
  return out;
}

// ---- Stream: its state

py::dict state(const PyStream& s) {
  const std::shared_ptr<const Stream> shared = s.stream.share();
  std::vector<float> all;
  double time = 0;
  {
    py::gil_scoped_release no_gil;
    const Read stream(shared);
    all = stream->get_states();
    time = stream->time();
  }
  py::dict states;
  const auto add = [&](const char* name, py::object values) {
    if (!states.contains(name)) states[name] = py::list();
    py::list(states[name]).append(std::move(values));
  };
  const float* at = all.data();
  for (const LayerInfo& layer : shared->model().layers())
    for (const StateInfo& info : layer.states) {
      const py::array_t<float> values(info.width, at);
      at += info.width;
      add(info.name.c_str(), values);
      if (info.name != "age") continue;
      py::array_t<double> k(info.width);
      for (int64_t j = 0; j < info.width; ++j) k.mutable_at(j) = time - values.at(j);
      add("k", std::move(k));
    }
  return states;
}

py::bytes save_state(const PyStream& s) {
  const std::shared_ptr<const Stream> stream = s.stream.share();
  auto blob = py::reinterpret_steal<py::bytes>(
      PyBytes_FromStringAndSize(nullptr, Py_ssize_t(stream->blob_bytes())));
  if (!blob) throw py::error_already_set();
  auto* const bytes = reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(blob.ptr()));
  {
    py::gil_scoped_release no_gil;
    stream->save(bytes);
  }
  return blob;
}

void load_state(PyStream& s, const py::buffer& blob) {
  const std::shared_ptr<Stream> stream = s.stream.share();
  const py::buffer_info bytes = blob.request();
  require(bytes.ndim == 1 && bytes.itemsize == 1 && bytes.strides[0] == 1,
          "blob is no row of bytes; accepted: what save_state gave");
  py::gil_scoped_release no_gil;
  stream->load(static_cast<const uint8_t*>(bytes.ptr), bytes.size);
}

std::unique_ptr<PyStream> forked(const PyStream& s) {
  const std::shared_ptr<const Stream> stream = s.stream.share();
  std::unique_ptr<Stream> twin;
  {
    py::gil_scoped_release no_gil;
    twin = stream->fork();
  }
  return std::make_unique<PyStream>(s.owner, std::move(twin));
}

void reset(PyStream& s) {
  const std::shared_ptr<Stream> stream = s.stream.share();
  py::gil_scoped_release no_gil;
  stream->reset();
}

std::string describe(const PyStream& s) {
  if (s.stream.closed()) return "<tsm.runtime.Stream: closed>";
  try {
    return "<tsm.runtime.Stream: position " + std::to_string(Read(s.stream.share())->position()) +
           ">";
  } catch (const Error&) {
    return "<tsm.runtime.Stream: busy>";
  }
}

// ---- names

ModelClass bind_model(py::module_& m) {
  py::class_<LayerInfo>(m, "Layer", "A layer of a model.")
      .def_readonly("cell", &LayerInfo::cell)
      .def_readonly("input_size", &LayerInfo::input_size)
      .def_readonly("hidden_size", &LayerInfo::hidden_size)
      .def_property_readonly(
          "states",
          [](const LayerInfo& l) {
            py::dict widths;
            for (const StateInfo& s : l.states) widths[s.name.c_str()] = s.width;
            return widths;
          },
          "Name -> width.")
      .def_readonly("interpreted", &LayerInfo::interpreted,
                    "The cell is not compiled in: it runs from the program in the file.");

  ModelClass type(m, "Model",
                  "A .tsm file, loaded. Immutable; any number of threads may use it at once.");
  type.def_static(
          "load", &load, py::arg("path"), py::arg("device") = "cpu", py::arg("dtype") = "float32",
          py::arg("threads") = 1,
          "device: cpu or cuda, where weights and states are kept and work is done; dtype:\n"
          "how weights are kept, float32, bfloat16 or int8; threads: of one call, on the CPU.")
      .def("create_stream", &create_stream, "A stream at its beginning: every state 0.")
      .def("feed_many", &feed_many, py::arg("streams"), py::arg("chunks"),
           py::arg("dts") = py::none(), py::arg("last_only") = false, py::arg("out") = py::none(),
           "Feed chunks[i] to streams[i], all at once; chunks may differ in length. A list, what\n"
           "feed gives for each. All are checked before the first is fed. out: an array or None\n"
           "for each; they must not overlap.")
      .def_property_readonly("family", [](const PyModel& m) { return name_of(m.model->family()); })
      .def_property_readonly("takes_tokens",
                             [](const PyModel& m) { return m.model->takes_tokens(); })
      .def_property_readonly(
          "vocab_size", [](const PyModel& m) { return m.model->vocab_size(); },
          "0 for models of float rows.")
      .def_property_readonly(
          "input_size", [](const PyModel& m) { return m.model->input_size(); },
          "Width of an input row; 0 for models of tokens.")
      .def_property_readonly(
          "output_size", [](const PyModel& m) { return m.model->output_size(); },
          "Width of the logits.")
      .def_property_readonly("takes_dt", [](const PyModel& m) { return m.model->takes_dt(); })
      .def_property_readonly(
          "shortest_dt",
          [](const PyModel& m) { return m.model->takes_dt() ? m.model->shortest_dt() : 0.0; },
          "The least dt that is accepted; 0 where the model takes none.")
      .def_property_readonly("layers", [](const PyModel& m) { return m.model->layers(); })
      .def_property_readonly("fingerprint", &fingerprint,
                             "Of config and weights, 16 hexadecimal digits; a saved state fits "
                             "models with the same one.")
      .def_property_readonly(
          "checksum", [](const PyModel& m) { return m.model->checksum(); },
          "CRC-32 of the file, 8 hexadecimal digits.")
      .def_property_readonly("device", [](const PyModel& m) { return name_of(m.model->device()); })
      .def_property_readonly("dtype", [](const PyModel& m) { return name_of(m.model->weights()); })
      .def_property_readonly("threads", [](const PyModel& m) { return m.model->threads(); })
      .def_property_readonly(
          "level", [](const PyModel& m) { return m.model->level(); },
          "The instruction-set level in use (see isa_levels()), or the GPU's architecture.")
      .def_property_readonly(
          "stream_bytes", [](const PyModel& m) { return m.model->stream_bytes(); },
          "Memory of one more stream.")
      .def_property_readonly(
          "weight_bytes", [](const PyModel& m) { return m.model->weight_bytes(); },
          "Memory of the packed matrices.")
      .def_property_readonly("config", &config, "The file's config.")
      .def("asset", &asset, py::arg("name"),
           "Bytes that travel with the model (text.dict, text.sentencepiece), or None.")
      .def("__repr__", [](const PyModel& m) { return describe(m); });
  return type;
}

StreamClass bind_stream(py::module_& m) {
  StreamClass type(m, "Stream",
                   "One endless sequence. It belongs to one thread at a time: a call during "
                   "another is refused.");
  type.def(
          "feed", &feed, py::arg("x"), py::arg("dt") = py::none(), py::arg("last_only") = false,
          py::arg("out") = py::none(),
          "Feed tokens [T] or float32 values [T, I]: logits, float32 [T, V], or [V] of the last\n"
          "step with last_only (of the current state where T = 0). dt: [T] or one number, 1 where\n"
          "None. out: an array to write to, which is then returned.")
      .def(
          "score", &score, py::arg("tokens"), py::arg("dt") = py::none(),
          "Feed tokens [T]: float32 [T], log p(token | all before it), the first from the current\n"
          "state.")
      .def(
          "generate", &generate, py::arg("n"), py::arg("temperature") = 1.0, py::arg("top_k") = 0,
          py::arg("top_p") = 1.0, py::arg("seed") = 0, py::arg("dt") = 1.0,
          "Draw n tokens, int64 [n], feeding each before the next. temperature 0: always the most\n"
          "probable; top_k 0: all. n and then m tokens are the same as n + m.")
      .def("state", &state,
           "Copies of the states, name -> one float32 array a layer; for cells with an age also\n"
           "k = time - age, float64.")
      .def("save_state", &save_state, "The stream as bytes, to store or to move.")
      .def("load_state", &load_state, py::arg("blob"),
           "Continue from what save_state gave, here or elsewhere, with the same model.")
      .def("fork", &forked, "A second stream that stands where this one does.")
      .def("reset", &reset, "Back to the beginning.")
      .def_property_readonly(
          "position", [](const PyStream& s) { return Read(s.stream.share())->position(); },
          "Steps fed.")
      .def_property_readonly(
          "time", [](const PyStream& s) { return Read(s.stream.share())->time(); },
          "Sum of their dt.")
      .def_property_readonly("model", [](const PyStream& s) { return s.owner; })
      .def("__repr__", [](const PyStream& s) { return describe(s); });
  return type;
}

}  // namespace

void bind_runtime(py::module_& m) {
  ModelClass model = bind_model(m);
  StreamClass stream = bind_stream(m);
  bind_text(model);
  bind_lifetime(model, stream);
  for (const char* name : {"Layer", "Model", "Stream"})
    m.attr(name).attr("__module__") = "tsm.runtime";
  m.def("isa_levels", [] {
    std::vector<std::string> names;
    for (const Level* level : host_levels()) names.push_back(level->name);
    return names;
  });
  m.def("active_level", [] { return active_level().name; });
}

}  // namespace tsm::bindings
