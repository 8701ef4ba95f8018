// Model and Stream in Python, with numpy arrays as inputs and outputs. The GIL is released while
// the engine computes or waits for a device.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "bindings.h"
#include "core/error.h"
#include "engine/feed.h"
#include "engine/model.h"
#include "engine/stream.h"
#include "no_gil.h"
#include "objects.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

// Holds a stream while it is read, so that the reader never sees half of another thread's step.
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
    const NoGil no_gil;
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
    const NoGil no_gil;
    made = model->create_stream();
  }
  return std::make_unique<PyStream>(std::move(m), std::move(made));
}

// ---- Stream: its state

py::dict state(const PyStream& s) {
  const std::shared_ptr<const Stream> shared = s.stream.share();
  std::vector<float> all;
  double time = 0;
  {
    const NoGil no_gil;
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
    const NoGil no_gil;
    stream->save(bytes);
  }
  return blob;
}

void load_state(PyStream& s, const py::buffer& blob) {
  const std::shared_ptr<Stream> stream = s.stream.share();
  const py::buffer_info bytes = row_of_bytes(blob);
  const NoGil no_gil;
  stream->load(static_cast<const uint8_t*>(bytes.ptr), bytes.size);
}

std::unique_ptr<PyStream> forked(const PyStream& s) {
  const std::shared_ptr<const Stream> stream = s.stream.share();
  std::unique_ptr<Stream> twin;
  {
    const NoGil no_gil;
    twin = stream->fork();
  }
  return std::make_unique<PyStream>(s.owner, std::move(twin));
}

void reset(PyStream& s) {
  const std::shared_ptr<Stream> stream = s.stream.share();
  const NoGil no_gil;
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
                  "A loaded .tsm file. Immutable; any number of threads may use it at once.");
  type.def_static(
          "load", &load, py::arg("path"), py::arg("device") = "cpu", py::arg("dtype") = "float32",
          py::arg("threads") = 1,
          "device: cpu or cuda, where the model runs and its weights and states are stored.\n"
          "dtype: how weights are stored: float32, bfloat16 or int8. threads: for one call, on\n"
          "the CPU; 0: one per core, at most 8, if a layer has 512 units or more, else 1.")
      .def("create_stream", &create_stream, "A new stream at position 0; all its states are 0.")
      .def_property_readonly("family", [](const PyModel& m) { return name_of(m.model->family()); })
      .def_property_readonly("takes_tokens",
                             [](const PyModel& m) { return m.model->takes_tokens(); })
      .def_property_readonly(
          "vocab_size", [](const PyModel& m) { return m.model->vocab_size(); },
          "0 if the model takes float rows.")
      .def_property_readonly(
          "input_size", [](const PyModel& m) { return m.model->input_size(); },
          "Width of an input row; 0 if the model takes tokens.")
      .def_property_readonly(
          "output_size", [](const PyModel& m) { return m.model->output_size(); },
          "Width of the logits.")
      .def_property_readonly("takes_dt", [](const PyModel& m) { return m.model->takes_dt(); })
      .def_property_readonly(
          "shortest_dt",
          [](const PyModel& m) { return m.model->takes_dt() ? m.model->shortest_dt() : 0.0; },
          "The shortest dt that is accepted; 0 if the model takes none.")
      .def_property_readonly("layers", [](const PyModel& m) { return m.model->layers(); })
      .def_property_readonly("fingerprint", &fingerprint,
                             "Identifies config and weights, 16 hexadecimal digits; a saved state "
                             "can be loaded by models with the same fingerprint.")
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
          "Bytes of memory that one more stream takes.")
      .def_property_readonly(
          "weight_bytes", [](const PyModel& m) { return m.model->weight_bytes(); },
          "Bytes of memory that the packed matrices take.")
      .def_property_readonly("config", &config, "The file's config.")
      .def("asset", &asset, py::arg("name"),
           "A file stored with the model (text.dict, text.sentencepiece) as bytes, or None.")
      .def("__repr__", [](const PyModel& m) { return describe(m); });
  return type;
}

StreamClass bind_stream(py::module_& m) {
  StreamClass type(m, "Stream",
                   "One endless sequence. Only one thread at a time may use it: a call during "
                   "another one is refused.");
  type.def("state", &state,
           "Copies of the states: name -> one float32 array per layer. Cells with an age also\n"
           "have k = time - age, float64.")
      .def("save_state", &save_state, "The state of the stream as bytes, to store or move it.")
      .def("load_state", &load_state, py::arg("blob"),
           "Continue from a state that save_state returned, for the same model.")
      .def("fork", &forked, "A second stream with the same states and position.")
      .def("reset", &reset, "Go back to position 0.")
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

py::buffer_info row_of_bytes(const py::buffer& blob) {
  py::buffer_info bytes = blob.request();
  require(bytes.ndim == 1 && bytes.itemsize == 1 && bytes.strides[0] == 1,
          "blob is not a one-dimensional buffer of bytes; accepted: what save_state returned");
  return bytes;
}

void bind_runtime(py::module_& m) {
  ModelClass model = bind_model(m);
  StreamClass stream = bind_stream(m);
  bind_cancel(m);
  bind_feeding(model, stream);
  bind_text(model);
  bind_lifetime(model, stream);
  bind_pool(m);
  for (const char* name : {"Cancel", "Layer", "Model", "Stream"})
    m.attr(name).attr("__module__") = "tsm.runtime";
  m.def("isa_levels", [] {
    std::vector<std::string> names;
    for (const Isa* isa : host_isas()) names.push_back(isa->name);
    return names;
  });
  m.def("active_level", [] { return active_isa().name; });
}

}  // namespace tsm::bindings
