// Training: the recurrence on raw addresses.
//
// It knows no torch and no numpy: arrays come in as integers (data_ptr()), so that one build serves
// every version of either. Callers check dtype, device and shape first
// (plugin/layers/fused_checks.py does).
#include <pybind11/stl.h>
#if defined(__linux__)
#include <dlfcn.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "bindings.h"
#include "core/buffer_cache.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "kernels/layer.h"
#ifdef TSM_WITH_CUDA
#include "kernels/cuda/train/recurrence.h"
#include "kernels/cuda/train/step.h"
#include "kernels/cuda/train/strided_copies.h"
#endif

namespace py = pybind11;

namespace tsm::bindings {
namespace {

using Address = uintptr_t;

template <class T = void>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

tsm::DType dtype_named(const std::string& name) {
  if (name == "float32") return tsm::DType::kFloat32;
  if (name == "float64") return tsm::DType::kFloat64;
  if (name == "bfloat16") return tsm::DType::kBFloat16;
  throw tsm::Error("dtype '" + name + "'; accepted: float32, float64, bfloat16");
}

void check_constants(const std::string& cell, const std::vector<double>& constants) {
  const int wanted = tsm::compiled_cell(cell).constants;
  if (int(constants.size()) != wanted)
    throw tsm::Error("cell '" + cell + "' takes " + std::to_string(wanted) + " constants, got " +
                     std::to_string(constants.size()));
}

py::dict describe(const tsm::CellInfo& c) {
  using namespace py::literals;
  return py::dict("gates"_a = c.gates, "states"_a = c.states, "vectors"_a = c.vectors,
                  "constants"_a = c.constants, "reads"_a = c.reads, "takes_dt"_a = c.takes_dt,
                  "hash"_a = c.hash);
}

// The addresses in the order of recurrence.h, on the CPU or on a GPU.
tsm::RecurrenceForward forward_args(const tsm::RecurrenceShape& shape,
                                    const std::vector<double>& constants,
                                    const std::array<Address, 10>& p) {
  return {shape,    at(p[0]),         at(p[1]), at(p[2]),
          at(p[3]), constants.data(), at(p[4]), at<const int64_t>(p[5]),
          at(p[6]), at(p[7]),         at(p[8]), at(p[9])};
}
tsm::RecurrenceBackward backward_args(const tsm::RecurrenceShape& shape,
                                      const std::vector<double>& constants,
                                      const std::array<Address, 11>& p) {
  return {shape,    at(p[0]), at(p[1]), constants.data(), at(p[2]), at<const int64_t>(p[3]),
          at(p[4]), at(p[5]), at(p[6]), at(p[7]),         at(p[8]), at(p[9]),
          at(p[10])};
}

void forward(const std::string& cell, const std::string& dtype,
             const std::vector<double>& constants, int threads, int64_t B, int64_t T, int64_t H,
             Address zx, Address weight_h, Address state, Address vectors, Address dt,
             Address lengths, Address y, Address last, Address z, Address trail) {
  check_constants(cell, constants);
  tsm::recurrence_forward(
      cell, dtype_named(dtype),
      forward_args({B, T, H, threads}, constants,
                   {zx, weight_h, state, vectors, dt, lengths, y, last, z, trail}));
}

void backward(const std::string& cell, const std::string& dtype,
              const std::vector<double>& constants, int threads, int64_t B, int64_t T, int64_t H,
              Address weight_h, Address vectors, Address dt, Address lengths, Address z,
              Address trail, Address grad_y, Address grad_last, Address grad_z, Address grad_state,
              Address grad_vectors) {
  check_constants(cell, constants);
  tsm::recurrence_backward(cell, dtype_named(dtype),
                           backward_args({B, T, H, threads}, constants,
                                         {weight_h, vectors, dt, lengths, z, trail, grad_y,
                                          grad_last, grad_z, grad_state, grad_vectors}));
}

// The states of a layer: a caller has an array [B,H] of each, the kernels have one, [S,B,H].
class States {
 public:
  States(const std::string& cell, const std::vector<Address>& arrays, int64_t B, int64_t H)
      : arrays_(arrays),
        bytes_(B * H * int64_t(sizeof(float))),
        together_(bytes_ * int64_t(arrays.size())) {
    const int wanted = tsm::compiled_cell(cell).states;
    if (int(arrays.size()) != wanted)
      throw tsm::Error("cell '" + cell + "' has " + std::to_string(wanted) + " states, got " +
                       std::to_string(arrays.size()));
  }

  Address together() const { return Address(together_.data()); }
  // Zeros where there is no array.
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

// What forward keeps for backward is one array: z, then trail.
Address trail_in(Address kept, const std::string& cell, int64_t B, int64_t T, int64_t H) {
  return kept ? kept + Address(B * T * tsm::compiled_cell(cell).gates * H) * sizeof(float) : 0;
}

// The addresses in the order of layer.h; wide: x, and the weights. first: the states before the
// chunk, or none: 0.
void layer_forward(const std::string& cell, const std::string& dtype,
                   const std::vector<double>& constants, const std::array<int64_t, 4>& sizes,
                   const std::array<bool, 2>& wide, int threads, const std::array<Address, 9>& p,
                   const std::vector<Address>& first, const std::vector<Address>& last) {
  check_constants(cell, constants);
  const auto [B, T, I, H] = sizes;
  const auto [x, weight_x, bias, weight_h, vectors, dt, lengths, y, kept] = p;
  std::optional<States> from;
  if (!first.empty()) from.emplace(cell, first, B, H).gather();
  const States to(cell, last, B, H);
  tsm::require(std::count(last.begin(), last.end(), Address(0)) == 0, "an array of last is null");
  const Address state = from ? from->together() : 0, trail = trail_in(kept, cell, B, T, H);
  tsm::layer_forward(
      cell, dtype_named(dtype),
      {forward_args({B, T, H, threads}, constants,
                    {0, weight_h, state, vectors, dt, lengths, y, to.together(), kept, trail}),
       {I, at(x), at(weight_x), at(bias), wide[0], wide[1]}});
  to.scatter();
}

// grad_last: 0 for each state that has none, or none at all. spend: `kept` is not needed any more.
void layer_backward(const std::string& cell, const std::string& dtype,
                    const std::vector<double>& constants, const std::array<int64_t, 4>& sizes,
                    const std::array<bool, 2>& wide, int threads, const std::array<Address, 16>& p,
                    const std::vector<Address>& grad_last, bool spend) {
  check_constants(cell, constants);
  const auto [B, T, I, H] = sizes;
  const auto [x, weight_x, weight_h, h, vectors, dt, lengths, y, kept, grad_y, grad_x,
              grad_weight_x, grad_bias, grad_weight_h, grad_state, grad_vectors] = p;
  std::optional<States> from;
  if (!grad_last.empty()) from.emplace(cell, grad_last, B, H).gather();
  const Address grads = from ? from->together() : 0, trail = trail_in(kept, cell, B, T, H);
  tsm::layer_backward(cell, dtype_named(dtype),
                      {backward_args({B, T, H, threads}, constants,
                                     {weight_h, vectors, dt, lengths, kept, trail, grad_y, grads,
                                      spend ? kept : 0, grad_state, grad_vectors}),
                       {I, at(x), at(weight_x), nullptr, wide[0], wide[1]},
                       at(h),
                       at(y),
                       at(grad_x),
                       at(grad_weight_x),
                       at(grad_bias),
                       at(grad_weight_h)});
}

#ifdef TSM_WITH_CUDA
int64_t workspace_cuda(const std::string& cell, const std::string& dtype, int device, int64_t B,
                       int64_t H, bool backward) {
  return tsm::recurrence_cuda_workspace(cell, dtype_named(dtype), device, B, H, backward);
}

std::string take_plan_cuda(const std::string& cell, const std::string& dtype, int device, int64_t B,
                           int64_t H, bool backward, int rank) {
  return tsm::recurrence_cuda_take_plan(cell, dtype_named(dtype), device, B, H, backward, rank);
}

void forward_cuda(const std::string& cell, const std::string& dtype,
                  const std::vector<double>& constants, int64_t B, int64_t T, int64_t H,
                  int64_t pitch, int64_t y_step, Address zx, Address weight_h, Address state,
                  Address vectors, Address dt, Address lengths, Address y, Address last, Address z,
                  Address trail, Address workspace, Address stream) {
  check_constants(cell, constants);
  tsm::recurrence_forward_cuda(
      cell, dtype_named(dtype),
      forward_args({B, T, H}, constants,
                   {zx, weight_h, state, vectors, dt, lengths, y, last, z, trail}),
      pitch, y_step, at(workspace), stream);
}

void backward_cuda(const std::string& cell, const std::string& dtype,
                   const std::vector<double>& constants, int64_t B, int64_t T, int64_t H,
                   int64_t pitch, int64_t y_step, Address weight_h, Address vectors, Address dt,
                   Address lengths, Address z, Address trail, Address grad_y, Address grad_last,
                   Address grad_z, Address grad_state, Address grad_vectors, Address workspace,
                   Address stream) {
  check_constants(cell, constants);
  tsm::recurrence_backward_cuda(cell, dtype_named(dtype),
                                backward_args({B, T, H}, constants,
                                              {weight_h, vectors, dt, lengths, z, trail, grad_y,
                                               grad_last, grad_z, grad_state, grad_vectors}),
                                pitch, y_step, at(workspace), stream);
}

// Each piece: address of from and of to, whether each is float, then size, inside, from_step and
// to_step, three each.
void copy_pieces(const std::vector<std::array<int64_t, 16>>& pieces,
                 const std::vector<double>& fills, Address stream) {
  tsm::require(pieces.size() == fills.size(), "as many pieces as fills");
  std::vector<tsm::cuda::StridedCopy> made(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& n = pieces[i];
    tsm::cuda::StridedCopy& p = made[i];
    p.from = at(Address(n[0]));
    p.to = at(Address(n[1]));
    p.from_float = n[2] != 0;
    p.to_float = n[3] != 0;
    p.fill = float(fills[i]);
    for (int d = 0; d < 3; ++d) {
      tsm::require(n[4 + d] >= 0 && n[4 + d] <= INT32_MAX && n[7 + d] <= n[4 + d],
                   "a piece is too large, or its source larger than itself");
      p.size[d] = int32_t(n[4 + d]);
      p.inside[d] = int32_t(n[7 + d]);
      p.from_step[d] = n[10 + d];
      p.to_step[d] = n[13 + d];
    }
  }
  constexpr size_t most = tsm::cuda::kMaxStridedCopies;
  for (size_t i = 0; i < made.size(); i += most)
    tsm::cuda::copy_strided(&made[i], int(std::min(most, made.size() - i)), stream);
}

tsm::StepCuda step_args(int64_t B, int64_t H, Address z, Address state, Address vectors, Address dt,
                        const std::vector<double>& constants) {
  return {B,
          H,
          at<const float>(z),
          at<const float>(state),
          at<const float>(vectors),
          constants.data(),
          at<const float>(dt)};
}

void step_forward(const std::string& cell, const std::vector<double>& constants, int64_t B,
                  int64_t H, Address z, Address state, Address vectors, Address dt, Address next,
                  Address stream) {
  check_constants(cell, constants);
  tsm::step_forward_cuda(cell, step_args(B, H, z, state, vectors, dt, constants), at<float>(next),
                         stream);
}

void step_backward(const std::string& cell, const std::vector<double>& constants, int64_t B,
                   int64_t H, Address z, Address state, Address vectors, Address dt,
                   Address grad_next, Address grad_z, Address grad_state, Address grad_vectors,
                   Address stream) {
  check_constants(cell, constants);
  tsm::step_backward_cuda(cell, step_args(B, H, z, state, vectors, dt, constants),
                          at<const float>(grad_next), at<float>(grad_z), at<float>(grad_state),
                          at<float>(grad_vectors), stream);
}
#endif

// Training is to run on the threads of the OpenMP runtime that `library` uses, a shared library of
// this process; before the first training. false, and nothing else, where it uses none that is
// known here.
bool share_threads([[maybe_unused]] const std::string& library) {
#if defined(__linux__)
  void* const loaded = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!loaded) return false;
  // As the dynamic linker has resolved it for `library`: from what is global, if that has it.
  void* const global = dlsym(RTLD_DEFAULT, "GOMP_parallel");
  const auto team = reinterpret_cast<Team>(global ? global : dlsym(loaded, "GOMP_parallel"));
  if (team) train_on(team);  // `loaded` stays open: so does what it points to
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

  py::class_<CachedBuffer>(
      m, "Memory", py::buffer_protocol(),
      "Bytes for a tensor that is working memory, used again once it has gone.")
      .def(py::init<int64_t>(), py::arg("bytes"))
      .def_buffer([](const CachedBuffer& memory) {
        return py::buffer_info(reinterpret_cast<uint8_t*>(memory.data()), memory.size());
      });

  m.def("share_threads", &share_threads);
  const py::call_guard<py::gil_scoped_release> no_gil;
  m.def("recurrence_forward", &forward, no_gil);
  m.def("recurrence_backward", &backward, no_gil);
  m.def("layer_forward", &layer_forward, no_gil);
  m.def("layer_backward", &layer_backward, no_gil);
#ifdef TSM_WITH_CUDA
  m.attr("with_cuda") = true;
  m.def("cuda_device_count", &tsm::cuda_device_count);
  m.def("recurrence_cuda_workspace", &workspace_cuda);
  m.def("recurrence_cuda_take_plan", &take_plan_cuda);
  m.def("recurrence_forward_cuda", &forward_cuda, no_gil);
  m.def("recurrence_backward_cuda", &backward_cuda, no_gil);
  m.def("copy_pieces_cuda", &copy_pieces, no_gil);
  m.def("step_forward_cuda", &step_forward, no_gil);
  m.def("step_backward_cuda", &step_backward, no_gil);
#else
  m.attr("with_cuda") = false;
  m.def("cuda_device_count", [] { return 0; });
#endif
}

}  // namespace tsm::bindings
