// Launches on a GPU that are described once and then run many times, each time on other arrays.
//
// A layer's call is a few launches over a dozen arrays. Their shapes and strides, the kernels,
// plans and products are the same in every call, so only addresses are passed to `run`. Products
// and the recurrence, which may be hundreds of launches, are replayed as a graph if their addresses
// come again. Copies and the links of vectors are not part of it: only they use x, the weights, the
// raw vectors and their gradients, whose addresses change more often.
#ifdef TSM_WITH_CUDA
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "core/error.h"
#include "kernels/cuda/nru/nru.h"
#include "kernels/cuda/replayed.h"
#include "kernels/cuda/train/products.h"
#include "kernels/cuda/train/recurrence.h"
#include "kernels/cuda/train/strided_copies.h"
#include "kernels/cuda/train/vector_links.h"
#include "layer_names.h"
#include "no_gil.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

// Index of an array of the call, and bytes from its start. None in Python: null.
using Place = std::optional<std::pair<size_t, size_t>>;

// The addresses of the arrays of one call.
struct Arrays {
  cuda::Replayed::Addresses address{};

  void* at(const Place& place) const {
    const uintptr_t start = place ? address.at(place->first) : 0;
    return start ? reinterpret_cast<void*>(start + place->second) : nullptr;
  }
};

// The addresses that Python passes in a tuple or list.
Arrays arrays_of(const py::sequence& addresses) {
  Arrays arrays;
  require(addresses.size() <= arrays.address.size(), "too many arrays");
  for (size_t i = 0; i < addresses.size(); ++i)
    arrays.address[i] = py::cast<uintptr_t>(addresses[i]);
  return arrays;
}

using Three = std::array<int64_t, 3>;
// A part of an array: where it begins, whether it is float32 (or else bfloat16), its shape, its
// strides in elements.
using View = std::tuple<Place, bool, Three, Three>;
// Bytes with the source's shape: where they begin, their strides, and the factor where they are 1.
using Mask = std::tuple<Place, Three, double>;
// To, source, fill, mask.
using Copy = std::tuple<View, std::optional<View>, double, std::optional<Mask>>;

cuda::StridedCopy strided_copy(const View& to, const View& source, double fill, const Mask& mask) {
  const auto& [to_place, to_float, size, to_step] = to;
  const auto& [from_place, from_float, inside, from_step] = source;
  const auto& [mask_place, mask_step, scale] = mask;
  cuda::StridedCopy p{};
  p.scale = float(scale);
  p.from_float = from_float;
  p.to_float = to_float;
  p.fill = float(fill);
  for (size_t d = 0; d < 3; ++d) {
    require(size[d] >= 0 && size[d] <= INT32_MAX && inside[d] <= size[d],
            "a copy is too large, or its source larger than its target");
    p.size[d] = int32_t(size[d]);
    p.inside[d] = int32_t(inside[d]);
    p.from_step[d] = from_step[d];
    p.to_step[d] = to_step[d];
    p.mask_step[d] = mask_step[d];
  }
  return p;
}

// An array of a recurrence.
template <class Args>
struct Field {
  const char* name;
  void (*set)(Args&, void*);
};
#define TSM_FIELD(name) \
  {#name, [](auto& args, void* array) { args.name = static_cast<decltype(args.name)>(array); }}
constexpr Field<RecurrenceForward> kForward[] = {
    TSM_FIELD(zx), TSM_FIELD(weight_h),    TSM_FIELD(state), TSM_FIELD(vectors),
    TSM_FIELD(dt), TSM_FIELD(lengths),     TSM_FIELD(y),     TSM_FIELD(last),
    TSM_FIELD(z),  TSM_FIELD(saved_states)};
constexpr Field<RecurrenceBackward> kBackward[] = {
    TSM_FIELD(weight_h), TSM_FIELD(vectors),      TSM_FIELD(dt),          TSM_FIELD(lengths),
    TSM_FIELD(z),        TSM_FIELD(saved_states), TSM_FIELD(grad_y),      TSM_FIELD(grad_last),
    TSM_FIELD(grad_z),   TSM_FIELD(grad_state),   TSM_FIELD(grad_vectors)};
#undef TSM_FIELD

using Named = std::map<std::string, Place>;

// Takes the place of a name out of the map.
Place taken(Named& arrays, const char* name) {
  const auto found = arrays.find(name);
  if (found == arrays.end()) throw py::type_error(std::string("missing array '") + name + "'");
  const Place place = found->second;
  arrays.erase(found);
  return place;
}

cuda::Link link_named(const std::string& name) {
  if (name == "sigmoid") return cuda::Link::kSigmoid;
  if (name == "exp") return cuda::Link::kExp;
  require(name == "identity", "unknown link");
  return cuda::Link::kIdentity;
}

using Launch = std::function<void(const Arrays&, uintptr_t stream)>;

// Launches that follow each other. Either all of them may be replayed, or none.
struct Section {
  std::vector<Launch> launches;
  std::vector<size_t> used;                  // arrays; may repeat
  std::unique_ptr<cuda::Replayed> replayed;  // null: launched each time

  void run(const Arrays& arrays, uintptr_t stream) const {
    const auto launch_all = [&](uintptr_t on) {
      for (const Launch& launch : launches) launch(arrays, on);
    };
    if (!replayed) return launch_all(stream);
    cuda::Replayed::Addresses addresses{};
    for (const size_t i : used) addresses.at(i) = arrays.address.at(i);
    replayed->run(addresses, stream, launch_all);
  }
};

class Launches {
 public:
  explicit Launches(int device) : device_(device) {}

  void copies(const std::vector<Copy>& given) {
    constexpr size_t most = cuda::kMaxStridedCopies;
    for (size_t first = 0; first < given.size(); first += most) {
      const size_t count = std::min(most, given.size() - first);
      std::array<cuda::StridedCopy, most> described{};
      std::array<std::array<Place, 3>, most> places;  // to, source, mask
      for (size_t i = 0; i < count; ++i) {
        const auto& [to, given_source, fill, given_mask] = given[first + i];
        const View source = given_source.value_or(View{{}, true, {}, {}});
        const Mask mask = given_mask.value_or(Mask{});
        described[i] = strided_copy(to, source, fill, mask);
        places[i] = {std::get<0>(to), std::get<0>(source), std::get<0>(mask)};
      }
      section(false).launches.push_back([=](const Arrays& arrays, uintptr_t stream) {
        auto copies = described;
        for (size_t i = 0; i < count; ++i) {
          copies[i].to = arrays.at(places[i][0]);
          copies[i].from = arrays.at(places[i][1]);
          copies[i].mask = static_cast<const uint8_t*>(arrays.at(places[i][2]));
        }
        cuda::copy_strided(copies.data(), int(count), stream);
      });
    }
  }

  // Values of a cell's vectors. raw: where each begins, whether it is float32 (or else bfloat16),
  // its stride, its link.
  void link_vectors(const Place& values,
                    const std::vector<std::tuple<Place, bool, int64_t, std::string>>& raw,
                    int64_t units, int64_t pitch) {
    std::vector<cuda::RawVector> described;
    std::vector<Place> places;
    for (const auto& [place, is_float, step, link] : raw) {
      described.push_back({nullptr, is_float, step, link_named(link)});
      places.push_back(place);
    }
    section(false).launches.push_back([=](const Arrays& arrays, uintptr_t stream) {
      auto vectors = described;
      for (size_t i = 0; i < vectors.size(); ++i) vectors[i].raw = arrays.at(places[i]);
      cuda::link_vectors(vectors.data(), int(vectors.size()), units, pitch,
                         static_cast<float*>(arrays.at(values)), stream);
    });
  }

  void vector_gradients(const Place& by_row, const Place& values, const Place& of_raw,
                        const std::vector<std::string>& links, int64_t rows, int64_t units,
                        int64_t pitch) {
    std::vector<cuda::Link> all;
    for (const std::string& name : links) all.push_back(link_named(name));
    section(false).launches.push_back([=](const Arrays& arrays, uintptr_t stream) {
      const auto floats = [&](const Place& place) { return static_cast<float*>(arrays.at(place)); };
      cuda::vector_gradients({floats(by_row), floats(values), floats(of_raw), rows, units, pitch},
                             all.data(), int(all.size()), stream);
    });
  }

  int64_t product(const Place& x, const Place& w, const Place& out, const Place& workspace,
                  const Three& sizes, const Three& row_steps, bool x_turned, bool w_turned,
                  const std::string& dtype, bool tf32) {
    const auto [n, m, k] = sizes;
    const auto [x_step, w_step, out_step] = row_steps;
    const DType kind = dtype_named(dtype);
    const bool rows_vary = true;
    const cuda::ProductShape shape{n,        m,        k,    x_step, w_step, out_step,
                                   x_turned, w_turned, kind, kind,   tf32,   rows_vary};
    std::shared_ptr<const cuda::Product> made;
    on_device(device_, [&] { made = std::make_shared<const cuda::Product>(shape); });
    add({x, w, out, workspace}, [=](const Arrays& a, uintptr_t stream) {
      made->run(a.at(x), a.at(w), nullptr, a.at(out), a.at(workspace), stream);
    });
    return made->workspace();
  }

  int64_t recurrence(const std::string& cell, const std::string& dtype,
                     const std::vector<double>& constants, const Three& shape, int64_t pitch,
                     int64_t y_step, bool tf32, bool backward, const Named& arrays) {
    check_constants(cell, constants);
    const auto [B, T, H] = shape;
    require(T <= pitch, "the pitch is less than the number of steps");
    const auto given = [&](const char* name) {
      const auto found = arrays.find(name);
      return found != arrays.end() && found->second.has_value();
    };
    const auto prepared = std::make_shared<const RecurrenceCuda>(
        RecurrenceSetup{cell, dtype_named(dtype), device_, B, H, backward, pitch, y_step, tf32,
                        given("weight_h"), given("z")});
    const RecurrenceShape each{B, T, H, 1};
    if (backward)
      add_recurrence(kBackward, &RecurrenceCuda::backward, prepared, each, constants, arrays);
    else
      add_recurrence(kForward, &RecurrenceCuda::forward, prepared, each, constants, arrays);
    return prepared->workspace();
  }

  void run(const py::tuple& addresses, uintptr_t stream) const {
    const Arrays arrays = arrays_of(addresses);
    const NoGil released;
    on_device(device_, [&] {
      for (const Section& each : sections_) each.run(arrays, stream);
    });
  }

 private:
  // The section for the next launch.
  Section& section(bool replayed) {
    if (sections_.empty() || bool(sections_.back().replayed) != replayed) {
      sections_.emplace_back();
      if (replayed) sections_.back().replayed = std::make_unique<cuda::Replayed>();
    }
    return sections_.back();
  }

  void add(const std::vector<Place>& places, Launch launch) {
    Section& to = section(true);
    for (const Place& place : places)
      if (place) to.used.push_back(place->first);
    to.launches.push_back(std::move(launch));
  }

  template <class Args, size_t N>
  void add_recurrence(const Field<Args> (&all)[N],
                      void (RecurrenceCuda::*run)(const Args&, void*, uintptr_t) const,
                      const std::shared_ptr<const RecurrenceCuda>& prepared,
                      const RecurrenceShape& shape, const std::vector<double>& constants,
                      Named arrays) {
    const Field<Args>* const fields = all;
    std::vector<Place> places;
    for (const Field<Args>& field : all) places.push_back(taken(arrays, field.name));
    places.push_back(taken(arrays, "workspace"));
    if (!arrays.empty()) throw py::type_error("unknown array '" + arrays.begin()->first + "'");
    add(places, [=](const Arrays& a, uintptr_t stream) {
      Args args{};
      args.shape = shape;
      args.constants = constants.data();
      for (size_t i = 0; i < N; ++i) fields[i].set(args, a.at(places[i]));
      (*prepared.*run)(args, a.at(places[N]), stream);
    });
  }

  const int device_;
  std::vector<Section> sections_;
};

// The recurrence of nru, in one direction.
class Nru {
 public:
  Nru(int device, const std::string& dtype, const std::array<int64_t, 6>& shape, bool tf32,
      bool backward)
      : device_(device) {
    const auto [B, T, H, M, heads, parts] = shape;
    const NruShape sizes(B, T, H, M, heads, int(parts));
    on_device(device_, [&] { prepared_.emplace(sizes, dtype_named(dtype), tf32, backward); });
  }
  int64_t workspace() const { return prepared_->workspace(); }
  void run(const py::list& addresses, uintptr_t stream) {
    const Arrays given = arrays_of(addresses);
    std::vector<void*> arrays;
    for (size_t i = 0; i < addresses.size(); ++i) arrays.push_back(given.at({{i, 0}}));
    const NoGil released;
    on_device(device_, [&] {
      replayed_.run(given.address, stream, [&](uintptr_t on) { prepared_->run(arrays, on); });
    });
  }

 private:
  const int device_;
  std::optional<const NruCuda> prepared_;
  cuda::Replayed replayed_;
};

}  // namespace

void bind_launches(py::module_& m) {
  using py::arg;
  const py::kw_only named;
  py::class_<Launches>(m, "Launches", "Launches on a GPU, described once and run on many arrays.")
      .def(py::init<int>(), named, arg("device"))
      .def("copies", &Launches::copies)
      .def("link_vectors", &Launches::link_vectors, named, arg("values"), arg("raw"), arg("units"),
           arg("pitch"))
      .def("vector_gradients", &Launches::vector_gradients, named, arg("by_row"), arg("values"),
           arg("of_raw"), arg("links"), arg("rows"), arg("units"), arg("pitch"))
      .def("product", &Launches::product, named, arg("x"), arg("w"), arg("out"), arg("workspace"),
           arg("sizes"), arg("row_steps"), arg("x_turned"), arg("w_turned"), arg("dtype"),
           arg("tf32"))
      .def("recurrence", &Launches::recurrence, named, arg("cell"), arg("dtype"), arg("constants"),
           arg("shape"), arg("pitch"), arg("y_step"), arg("tf32"), arg("backward"), arg("arrays"))
      .def("run", &Launches::run);
  py::class_<Nru>(m, "Nru",
                  "The recurrence of nru in one direction; shape: B, T, H, M, heads, parts.")
      .def(py::init<int, const std::string&, const std::array<int64_t, 6>&, bool, bool>(), named,
           arg("device"), arg("dtype"), arg("shape"), arg("tf32"), arg("backward"))
      .def_property_readonly("workspace", &Nru::workspace)
      .def("run", &Nru::run);
  m.def("cuda_replay_from", &cuda::replay_from, named, arg("launches"));
  m.def("cuda_replays", [] {
    const cuda::Replays all = cuda::replays();
    return std::pair(all.graphs, all.calls);
  });
}

}  // namespace tsm::bindings
#endif
