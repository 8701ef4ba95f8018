#include "arrays.h"

#include <cstring>

#include "core/error.h"

namespace py = pybind11;

namespace tsm::bindings {
namespace {

using Flags = py::detail::npy_api;
constexpr int kDense = Flags::NPY_ARRAY_C_CONTIGUOUS_ | Flags::NPY_ARRAY_ALIGNED_;

[[noreturn]] void refuse(const Name& name, const std::string& found, const std::string& accepted) {
  throw Error(name.str() + " " + found + "; accepted: " + accepted);
}

std::string shape_of(const py::array& a) { return py::str(a.attr("shape")).cast<std::string>(); }

bool has_type(const py::dtype& type, char kind, ssize_t bytes) {
  return type.kind() == kind && type.itemsize() == bytes && type.byteorder() != '>';
}

// Arrays are used as they are; other objects are converted, and `converted` keeps the result alive.
// accepted() returns text for the error message and is called only on an error.
template <class Text>
py::array array_from(py::handle x, const Name& name, const Text& accepted, py::object& converted) {
  if (py::isinstance<py::array>(x)) return py::reinterpret_borrow<py::array>(x);
  try {
    converted = py::module_::import("numpy").attr("asarray")(x);
  } catch (const py::error_already_set&) {
    refuse(name, "of type " + std::string(Py_TYPE(x.ptr())->tp_name) + " is not an array",
           accepted());
  }
  return py::reinterpret_borrow<py::array>(converted);
}

template <class From, class To>
void gather(const char* from, ssize_t stride, int64_t n, To* to) {
  for (int64_t i = 0; i < n; ++i) {
    From value;
    std::memcpy(&value, from + i * stride, sizeof(From));
    to[i] = To(value);
  }
}

}  // namespace

TokenInput read_tokens(py::handle x, const Name& name) {
  const auto accepted = [] { return "uint16, int32 or int64 tokens [T]"; };
  TokenInput in;
  const py::array a = array_from(x, name, accepted, in.converted);
  if (a.ndim() != 1) refuse(name, "has shape " + shape_of(a), accepted());
  in.rows = a.shape(0);
  const py::dtype type = a.dtype();
  if (in.rows == 0 && in.converted) return in;  // an empty list has numpy's default type
  const bool dense = (a.flags() & kDense) == kDense;
  in.copy.resize(dense ? 0 : size_t(in.rows));
  const auto read = [&](auto zero) {
    using From = decltype(zero);
    if (dense)
      in.tokens = Tokens(static_cast<const From*>(a.data()));
    else
      gather<From>(static_cast<const char*>(a.data()), a.strides(0), in.rows, in.copy.data());
  };
  if (has_type(type, 'i', 8))
    read(int64_t(0));
  else if (has_type(type, 'i', 4))
    read(int32_t(0));
  else if (has_type(type, 'u', 2))
    read(uint16_t(0));
  else
    refuse(name, "has dtype " + py::str(type).cast<std::string>(), accepted());
  if (!dense) in.tokens = Tokens(in.copy.data());
  return in;
}

Input<float> read_values(py::handle x, int64_t width, const Name& name) {
  const auto accepted = [&] { return "float32 [T, " + std::to_string(width) + "]"; };
  Input<float> in;
  const py::array a = array_from(x, name, accepted, in.converted);
  if (a.ndim() != 2 || a.shape(1) != width) refuse(name, "has shape " + shape_of(a), accepted());
  in.rows = a.shape(0);
  const py::dtype type = a.dtype();
  // Python's floats are doubles, so lists of them are accepted. An array of doubles is probably a
  // mistake and is refused.
  const bool doubles = in.converted && !py::hasattr(x, "dtype") && has_type(type, 'f', 8);
  if (!doubles && !has_type(type, 'f', 4))
    refuse(name, "has dtype " + py::str(type).cast<std::string>(), accepted());
  if (!doubles && (a.flags() & kDense) == kDense) {
    in.data = static_cast<const float*>(a.data());
    return in;
  }
  in.copy.resize(size_t(in.rows * width));
  for (int64_t t = 0; t < in.rows; ++t) {
    const char* from = static_cast<const char*>(a.data()) + t * a.strides(0);
    if (doubles)
      gather<double>(from, a.strides(1), width, &in.copy[size_t(t * width)]);
    else
      gather<float>(from, a.strides(1), width, &in.copy[size_t(t * width)]);
  }
  in.data = in.copy.data();
  return in;
}

Input<float> read_dt(py::handle dt, int64_t T, const Name& name) {
  Input<float> in;
  in.rows = T;
  if (dt.is_none()) return in;
  const auto accepted = [&] {
    return "None, a number, or float32 or float64 [T] with T = " + std::to_string(T);
  };
  if (PyFloat_Check(dt.ptr()) || PyLong_Check(dt.ptr())) {
    const double value = PyFloat_AsDouble(dt.ptr());
    if (value == -1.0 && PyErr_Occurred()) {
      PyErr_Clear();
      refuse(name, "does not fit in a float", accepted());
    }
    in.copy.assign(size_t(T), float(value));
  } else {
    const py::array a = array_from(dt, name, accepted, in.converted);
    if (a.ndim() > 1 || (a.ndim() == 1 && a.shape(0) != T))
      refuse(name, "has shape " + shape_of(a), accepted());
    const py::dtype type = a.dtype();
    const bool single = has_type(type, 'f', 4);
    const bool whole = in.converted && !py::hasattr(dt, "dtype") && has_type(type, 'i', 8);
    if (!single && !whole && !has_type(type, 'f', 8))
      refuse(name, "has dtype " + py::str(type).cast<std::string>(), accepted());
    if (single && a.ndim() == 1 && (a.flags() & kDense) == kDense) {
      in.data = static_cast<const float*>(a.data());
      return in;
    }
    in.copy.resize(size_t(T));
    const ssize_t stride = a.ndim() == 1 ? a.strides(0) : 0;
    const char* from = static_cast<const char*>(a.data());
    if (single)
      gather<float>(from, stride, T, in.copy.data());
    else if (whole)
      gather<int64_t>(from, stride, T, in.copy.data());
    else
      gather<double>(from, stride, T, in.copy.data());
  }
  static const float none = 1;
  in.data = T > 0 ? in.copy.data() : &none;
  return in;
}

float* result_array(py::handle out, int64_t rows, int64_t width, const Name& name,
                    py::object& result) {
  if (out.is_none()) {
    py::array_t<float> made =
        rows < 0 ? py::array_t<float>(width) : py::array_t<float>({ssize_t(rows), ssize_t(width)});
    float* data = made.mutable_data();
    result = std::move(made);
    return data;
  }
  const auto accepted = [&] {
    return "a writeable, C-contiguous float32 array [" +
           (rows < 0 ? "" : std::to_string(rows) + ", ") + std::to_string(width) + "]";
  };
  if (!py::isinstance<py::array>(out))
    refuse(name, "is a " + std::string(Py_TYPE(out.ptr())->tp_name), accepted());
  py::array a = py::reinterpret_borrow<py::array>(out);
  const bool fits = rows < 0 ? a.ndim() == 1 && a.shape(0) == width
                             : a.ndim() == 2 && a.shape(0) == rows && a.shape(1) == width;
  if (!fits) refuse(name, "has shape " + shape_of(a), accepted());
  const py::dtype type = a.dtype();
  if (!has_type(type, 'f', 4))
    refuse(name, "has dtype " + py::str(type).cast<std::string>(), accepted());
  if ((a.flags() & kDense) != kDense) refuse(name, "is not contiguous", accepted());
  if (!a.writeable()) refuse(name, "is read-only", accepted());
  float* data = static_cast<float*>(a.mutable_data());
  result = std::move(a);
  return data;
}

}  // namespace tsm::bindings
