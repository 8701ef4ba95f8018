// Converts numpy arguments for the engine: a pointer into the caller's array if its layout allows,
// otherwise a copy. Errors name the argument, its value and what is accepted.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/tokens.h"

namespace tsm::bindings {

// An argument as errors name it: "x", or "chunks[3]". The text is built only for an error.
struct Name {
  const char* text;
  int64_t index = -1;
  Name(const char* text, int64_t index = -1) : text(text), index(index) {}
  std::string str() const { return index < 0 ? text : text + ("[" + std::to_string(index) + "]"); }
};

template <class T>
struct Input {
  const T* data = nullptr;
  int64_t rows = 0;            // T
  std::vector<T> copy;         // if one was needed
  pybind11::object converted;  // keeps a converted array alive
};

struct TokenInput {
  Tokens tokens;
  int64_t rows = 0;
  std::vector<int64_t> copy;
  pybind11::object converted;
};

// Reads integers [T]: uint16, int32 or int64.
TokenInput read_tokens(pybind11::handle x, const Name& name);

// float32 [T, width].
Input<float> read_values(pybind11::handle x, int64_t width, const Name& name);

// Reads dt: float32 or float64 [T], or one number for all T steps; None becomes null. An empty dt
// does not: the engine checks whether the model takes one.
Input<float> read_dt(pybind11::handle dt, int64_t T, const Name& name);

// The array for float32 results [rows, width] (rows < 0: [width]): a new one in `result`, or `out`
// itself if it has that shape.
float* result_array(pybind11::handle out, int64_t rows, int64_t width, const Name& name,
                    pybind11::object& result);

}  // namespace tsm::bindings
