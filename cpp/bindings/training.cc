// Bindings for training a layer: arrays are passed as raw addresses, and arguments by name. Those
// of layers on a GPU are in launches.cc.
//
// This file depends on neither torch nor numpy: arrays are passed as integers (data_ptr()), so that
// one build works with every version of both. Callers check dtype, device and shape first
// (plugin/layers/checks.py does).
#include <pybind11/stl.h>
#if defined(__linux__)
#include <dlfcn.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "bindings.h"
#include "core/buffer_cache.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "kernels/layer.h"
#include "layer_names.h"
#include "no_gil.h"
#ifdef TSM_WITH_CUDA
#include "kernels/cuda/train/cross_entropy.h"
#include "kernels/cuda/train/descent.h"
#include "kernels/cuda/train/embedding.h"
#include "kernels/cuda/train/products.h"
#include "kernels/cuda/train/recurrence.h"
#include "kernels/cuda/train/regularisers.h"
#endif

namespace py = pybind11;

namespace tsm::bindings {
namespace {

using Address = uintptr_t;

template <class T = void>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

py::dict describe(const tsm::CellInfo& c) {
  using namespace py::literals;
  return py::dict("gates"_a = c.gates, "states"_a = c.states, "vectors"_a = c.vectors,
                  "constants"_a = c.constants, "reads"_a = c.reads, "takes_dt"_a = c.takes_dt,
                  "hash"_a = c.hash);
}

int64_t bytes_of_states(tsm::DType dtype) { return dtype == tsm::DType::kFloat64 ? 8 : 4; }

// The states of a layer. Callers pass one array [B,H] per state; the kernels use a single array
// [S,B,H].
class States {
 public:
  States(const std::string& cell, tsm::DType dtype, const std::vector<Address>& arrays, int64_t B,
         int64_t H)
      : arrays_(arrays),
        bytes_(B * H * bytes_of_states(dtype)),
        together_(bytes_ * int64_t(arrays.size())) {
    const int wanted = tsm::compiled_cell(cell).states;
    if (int(arrays.size()) != wanted)
      throw tsm::Error("cell '" + cell + "' has " + std::to_string(wanted) + " states, got " +
                       std::to_string(arrays.size()));
  }

  void* together() const { return together_.data(); }
  // Uses zeros for a missing array.
  void gather() const {
    for (size_t i = 0; i < arrays_.size(); ++i)
      if (arrays_[i])
        std::memcpy(place(i), at(arrays_[i]), size_t(bytes_));
      else
        std::memset(place(i), 0, size_t(bytes_));
  }
  void scatter() const {
    for (size_t i = 0; i < arrays_.size(); ++i)
      std::memcpy(at(arrays_[i]), place(i), size_t(bytes_));
  }

 private:
  char* place(size_t i) const { return together_.data() + int64_t(i) * bytes_; }

  const std::vector<Address>& arrays_;
  const int64_t bytes_;
  const CachedBuffer together_;
};

// Forward saves one array for backward: z, followed by the states before each step.
void* states_in(Address saved, const std::string& cell, tsm::DType dtype, int64_t B, int64_t T,
                int64_t H) {
  const int64_t z = B * T * tsm::compiled_cell(cell).gates * H;
  return saved ? at<char>(saved) + z * bytes_of_states(dtype) : nullptr;
}

// state: the address of each state before the chunk, 0 for zeros; may be empty.
void layer_forward(const std::string& cell, const std::string& dtype_name,
                   const std::vector<double>& constants, int threads, int64_t batch, int64_t steps,
                   int64_t inputs, int64_t hidden, bool full_precision_x,
                   bool full_precision_weights, Address x, Address weight_x, Address bias,
                   Address weight_h, const std::vector<Address>& state, Address vectors, Address dt,
                   Address lengths, Address y, const std::vector<Address>& last, Address saved) {
  check_constants(cell, constants);
  const tsm::DType dtype = dtype_named(dtype_name);
  std::optional<States> from;
  if (!state.empty()) from.emplace(cell, dtype, state, batch, hidden).gather();
  const States to(cell, dtype, last, batch, hidden);
  tsm::require(std::count(last.begin(), last.end(), Address(0)) == 0, "an array of last is null");
  tsm::LayerForward args{};
  args.input = {inputs, at(x), at(weight_x), at(bias), full_precision_x, full_precision_weights};
  tsm::RecurrenceForward& r = args.recurrence;
  r.shape = {batch, steps, hidden, threads};
  r.weight_h = at(weight_h);
  r.state = from ? from->together() : nullptr;
  r.vectors = at(vectors);
  r.constants = constants.data();
  r.dt = at(dt);
  r.lengths = at<const int64_t>(lengths);
  r.y = at(y);
  r.last = to.together();
  r.z = at(saved);
  r.saved_states = states_in(saved, cell, dtype, batch, steps, hidden);
  tsm::layer_forward(cell, dtype, args);
  to.scatter();
}

// h: the address of h before the chunk, or 0. grad_last: the address of each state's gradient, 0
// for a zero gradient; may be empty. overwrite_saved: `saved` is not read after this call and may
// be overwritten.
void layer_backward(const std::string& cell, const std::string& dtype_name,
                    const std::vector<double>& constants, int threads, int64_t batch, int64_t steps,
                    int64_t inputs, int64_t hidden, bool full_precision_x,
                    bool full_precision_weights, Address x, Address weight_x, Address weight_h,
                    Address h, Address vectors, Address dt, Address lengths, Address y,
                    Address saved, bool overwrite_saved, Address grad_y,
                    const std::vector<Address>& grad_last, Address grad_x, Address grad_weight_x,
                    Address grad_bias, Address grad_weight_h, Address grad_state,
                    Address grad_vectors) {
  check_constants(cell, constants);
  const tsm::DType dtype = dtype_named(dtype_name);
  std::optional<States> from;
  if (!grad_last.empty()) from.emplace(cell, dtype, grad_last, batch, hidden).gather();
  tsm::LayerBackward args{};
  args.input = {inputs, at(x), at(weight_x), nullptr, full_precision_x, full_precision_weights};
  tsm::RecurrenceBackward& r = args.recurrence;
  r.shape = {batch, steps, hidden, threads};
  r.weight_h = at(weight_h);
  r.vectors = at(vectors);
  r.constants = constants.data();
  r.dt = at(dt);
  r.lengths = at<const int64_t>(lengths);
  r.z = at(saved);
  r.saved_states = states_in(saved, cell, dtype, batch, steps, hidden);
  r.grad_y = at(grad_y);
  r.grad_last = from ? from->together() : nullptr;
  r.grad_z = overwrite_saved ? at(saved) : nullptr;
  r.grad_state = at(grad_state);
  r.grad_vectors = at(grad_vectors);
  args.h = at(h);
  args.y = at(y);
  args.grad_x = at(grad_x);
  args.grad_weight_x = at(grad_weight_x);
  args.grad_bias = at(grad_bias);
  args.grad_weight_h = at(grad_weight_h);
  tsm::layer_backward(cell, dtype, args);
}

#ifdef TSM_WITH_CUDA
std::pair<std::string, double> plan_cuda(const std::string& cell, const std::string& dtype,
                                         int device, int64_t batch, int64_t hidden, bool backward) {
  const tsm::PlanInWords plan =
      tsm::recurrence_cuda_plan(cell, dtype_named(dtype), device, batch, hidden, backward);
  return {plan.words, plan.step_us};
}

std::string take_plan_cuda(const std::string& cell, const std::string& dtype, int device,
                           int64_t batch, int64_t hidden, bool backward, int rank) {
  return tsm::recurrence_cuda_take_plan(cell, dtype_named(dtype), device, batch, hidden, backward,
                                        rank);
}

std::string path_cuda(int device) { return tsm::recurrence_cuda_path(device); }

void pretend_cuda(const std::string& like) { tsm::recurrence_cuda_pretend(like); }

// Without grad: the losses of the rows are written to `out`. With it: the gradient of the logits.
void cross_entropy_cuda(const std::string& dtype, int device, int64_t rows, int64_t classes,
                        uintptr_t logits, uintptr_t target, uintptr_t log_sums, uintptr_t grad,
                        int64_t grad_step, uintptr_t out, uintptr_t stream) {
  const auto at = [](uintptr_t address) { return reinterpret_cast<float*>(address); };
  const tsm::cuda::LossRows all{
      at(logits), dtype_named(dtype) == tsm::DType::kFloat32, rows,
      classes,    reinterpret_cast<const int64_t*>(target),   at(log_sums)};
  tsm::on_device(device, [&] {
    if (grad)
      tsm::cuda::cross_entropy_gradient(all, at(grad), grad_step, at(out), stream);
    else
      tsm::cuda::cross_entropy(all, at(out), stream);
  });
}

void embedding_gradient_cuda(int device, bool wide, int64_t count, int64_t rows, int64_t width,
                             Address tokens, Address grad, Address factors, Address out,
                             uintptr_t stream) {
  const tsm::cuda::EmbeddingGradient given{
      at(tokens), wide, count, rows, width, at<float>(grad), at<float>(factors)};
  tsm::on_device(device, [&] { tsm::cuda::embedding_gradient(given, at<float>(out), stream); });
}

// Without averages: none is kept.
std::vector<tsm::cuda::TrainedArray> trained_arrays(const std::vector<Address>& weights,
                                                    const std::vector<Address>& gradients,
                                                    const std::vector<Address>& averages,
                                                    const std::vector<int64_t>& lengths) {
  const size_t count = lengths.size();
  tsm::require(weights.size() == count && gradients.size() == count &&
                   (averages.empty() || averages.size() == count),
               "weights, gradients, averages and lengths differ in number");
  std::vector<tsm::cuda::TrainedArray> arrays(count);
  for (size_t i = 0; i < count; ++i) {
    const bool there = weights[i] && gradients[i] && (averages.empty() || averages[i]);
    tsm::require(lengths[i] == 0 || (lengths[i] > 0 && there),
                 "the length of an array is negative, or its address is 0");
    arrays[i] = {at<float>(weights[i]), at<float>(gradients[i]),
                 averages.empty() ? nullptr : at<float>(averages[i]), lengths[i]};
  }
  return arrays;
}

void gradient_norm_cuda(int device, const std::vector<Address>& gradients,
                        const std::vector<int64_t>& lengths, Address count, double limit,
                        int blocks, Address out, uintptr_t stream) {
  const auto arrays = trained_arrays(gradients, gradients, {}, lengths);
  tsm::on_device(device, [&] {
    tsm::cuda::gradient_norm(arrays, at<double>(count), limit, blocks, at<double>(out), stream);
  });
}

void descend_cuda(int device, const std::vector<Address>& weights,
                  const std::vector<Address>& gradients, const std::vector<Address>& averages,
                  const std::vector<int64_t>& lengths, Address factor, double rate, double decay,
                  double share, uintptr_t stream) {
  const auto arrays = trained_arrays(weights, gradients, averages, lengths);
  const tsm::cuda::DescentStep step{at<double>(factor), float(rate), float(decay), float(share)};
  tsm::on_device(device, [&] { tsm::cuda::descend(arrays, step, stream); });
}

// Values, elements from one row and one step to the next, shape, factor, gradient.
using Regularised = std::optional<
    std::tuple<Address, std::array<int64_t, 2>, std::array<int64_t, 3>, double, Address>>;

void regulariser_gradients_cuda(const std::string& dtype, int device, Address count,
                                const Regularised& ar, const Regularised& tar, uintptr_t stream) {
  const auto described = [](const Regularised& given) {
    if (!given) return tsm::cuda::Activations{};
    const auto& [values, steps, shape, factor, grad] = *given;
    return tsm::cuda::Activations{at(values), steps[0], steps[1],      shape[0],
                                  shape[1],   shape[2], float(factor), at(grad)};
  };
  const bool is_float = dtype_named(dtype) == tsm::DType::kFloat32;
  tsm::on_device(device, [&] {
    tsm::cuda::regulariser_gradients(is_float, at<float>(count), described(ar), described(tar),
                                     stream);
  });
}

#endif

// Like m.def, for a function with keyword-only arguments: a missing or unknown name raises.
// pybind11 would create a string for every name in every call, which takes longer than the kernels
// of a small layer.
template <class Result, class... Args>
void define(py::module_& m, const char* name, Result (*function)(Args...),
            const std::array<const char*, sizeof...(Args)>& names) {
  std::array<py::object, sizeof...(Args)> keys;
  for (size_t i = 0; i < keys.size(); ++i)
    keys[i] = py::reinterpret_steal<py::object>(PyUnicode_InternFromString(names[i]));
  m.def(name, [=](const py::kwargs& given) {
    size_t next = 0;
    const auto value = [&] {
      PyObject* const found = PyDict_GetItemWithError(given.ptr(), keys[next].ptr());
      if (!found)
        throw py::type_error(std::string(name) + "() is missing argument '" + names[next] + "'");
      ++next;
      return py::handle(found);
    };
    std::tuple<std::decay_t<Args>...> values{py::cast<std::decay_t<Args>>(value())...};
    if (given.size() != keys.size())
      throw py::type_error(std::string(name) + "() takes " + std::to_string(keys.size()) +
                           " arguments, got " + std::to_string(given.size()));
    const NoGil released;
    return std::apply(function, values);
  });
}

// Makes training run on the threads of the OpenMP runtime that `library`, a shared library loaded
// in this process, uses. Call it before training starts. Does nothing and returns false if no known
// runtime is found.
bool share_threads([[maybe_unused]] const std::string& library) {
#if defined(__linux__)
  void* const loaded = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!loaded) return false;
  // Resolve the symbol as the dynamic linker did for `library`: global scope first.
  void* const global = dlsym(RTLD_DEFAULT, "GOMP_parallel");
  const auto team = reinterpret_cast<Team>(global ? global : dlsym(loaded, "GOMP_parallel"));
  if (team) train_on(team);  // `loaded` is never closed, so `team` stays valid
  return team != nullptr;
#else
  return false;
#endif
}

}  // namespace

void bind_training(py::module_& m) {
  py::dict cells;
  for (const tsm::CellInfo& info : tsm::compiled_cells()) cells[info.name] = describe(info);
  m.attr("cells") = cells;

  py::class_<CachedBuffer>(m, "Memory", py::buffer_protocol(),
                           "Working memory for a tensor, reused after the tensor is freed.")
      .def(py::init<int64_t>(), py::arg("bytes"))
      .def_buffer([](const CachedBuffer& memory) {
        return py::buffer_info(reinterpret_cast<uint8_t*>(memory.data()), memory.size());
      });

  m.def("share_threads", &share_threads);
  define(m, "layer_forward", layer_forward,
         {"cell",
          "dtype",
          "constants",
          "threads",
          "batch",
          "steps",
          "inputs",
          "hidden",
          "full_precision_x",
          "full_precision_weights",
          "x",
          "weight_x",
          "bias",
          "weight_h",
          "state",
          "vectors",
          "dt",
          "lengths",
          "y",
          "last",
          "saved"});
  define(m, "layer_backward", layer_backward,
         {"cell",
          "dtype",
          "constants",
          "threads",
          "batch",
          "steps",
          "inputs",
          "hidden",
          "full_precision_x",
          "full_precision_weights",
          "x",
          "weight_x",
          "weight_h",
          "h",
          "vectors",
          "dt",
          "lengths",
          "y",
          "saved",
          "overwrite_saved",
          "grad_y",
          "grad_last",
          "grad_x",
          "grad_weight_x",
          "grad_bias",
          "grad_weight_h",
          "grad_state",
          "grad_vectors"});
#ifdef TSM_WITH_CUDA
  m.attr("with_cuda") = true;
  m.def("cuda_device_count", &tsm::cuda_device_count);
  define(m, "recurrence_cuda_plan", plan_cuda,
         {"cell", "dtype", "device", "batch", "hidden", "backward"});
  define(m, "recurrence_cuda_path", path_cuda, {"device"});
  define(m, "recurrence_cuda_pretend", pretend_cuda, {"like"});
  define(m, "recurrence_cuda_take_plan", take_plan_cuda,
         {"cell", "dtype", "device", "batch", "hidden", "backward", "rank"});
  define(m, "cross_entropy_cuda", cross_entropy_cuda,
         {"dtype", "device", "rows", "classes", "logits", "target", "log_sums", "grad", "grad_step",
          "out", "stream"});
  define(
      m, "embedding_gradient_cuda", embedding_gradient_cuda,
      {"device", "wide", "count", "rows", "width", "tokens", "grad", "factors", "out", "stream"});
  define(m, "gradient_norm_cuda", gradient_norm_cuda,
         {"device", "gradients", "lengths", "count", "limit", "blocks", "out", "stream"});
  define(m, "descend_cuda", descend_cuda,
         {"device", "weights", "gradients", "averages", "lengths", "factor", "rate", "decay",
          "share", "stream"});
  define(m, "regulariser_gradients_cuda", regulariser_gradients_cuda,
         {"dtype", "device", "count", "ar", "tar", "stream"});
  m.def("has_products", &tsm::cuda::has_products);
  m.def("plan_version", &tsm::recurrence_cuda_plan_version);
  bind_launches(m);
#else
  m.attr("with_cuda") = false;
  m.def("cuda_device_count", [] { return 0; });
#endif
}

}  // namespace tsm::bindings
