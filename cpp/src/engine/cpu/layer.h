// One recurrent layer over a slice of some streams.
//
// Rows of a slice are ordered by step; a step has one row for each stream that still has input.
// Streams are sorted by the length of their input, so these are the first ones:
//
//   step t: rows first[t] .. first[t+1], row first[t] + i belongs to stream i, i < active[t]
//
// z = bias + W x is one product for all rows. Then every step adds U h and runs the cell. Each sum
// has a fixed order, so that a row's result does not depend on the other rows.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/thread_pool.h"
#include "engine/cpu/matrix.h"
#include "engine/cpu/workspace.h"
#include "engine/file/config.h"
#include "kernels/cpu/isa.h"

namespace tsm {

struct Slice {
  int64_t streams, steps;
  const int64_t* active;  // [steps]
  const int64_t* first;   // [steps + 1]
  float* const* memory;   // [streams] each stream's states
  const float* dt;        // [rows]
  const int64_t* tokens;  // [rows] with one-hot input, else null
  const uint8_t* x;       // [rows] encoded, else null
  // [streams + rows] encoded: h of every stream before the slice, then of every row. The next
  // layer, the head and this layer's own U read it.
  uint8_t* y;

  int64_t rows() const { return first[steps]; }
  // The row of y with the output of stream i after step t; t = -1 is before the slice.
  int64_t output(int64_t t, int64_t i) const { return t < 0 ? i : streams + first[t] + i; }
};

class CpuLayer {
 public:
  // The layer's states begin `offset` floats into a stream's memory, each state at a multiple of 64
  // bytes. `number` is the layer's index in the names of its tensors.
  static std::unique_ptr<CpuLayer> load(const ModelFile& file, int64_t number, const Isa& isa,
                                        Weights weights, int64_t offset);
  virtual ~CpuLayer() = default;

  int64_t hidden_size() const { return H_; }
  int64_t encoded_bytes() const { return recurrent_.encoded_bytes(); }  // of a row of y
  virtual bool interpreted() const { return false; }
  virtual int64_t weight_bytes() const;

  // Encodes h of a stream as in `y`.
  void encode(const float* memory, uint8_t* encoded) const {
    recurrent_.encode(memory + states_[0].at, encoded);
  }

  // Encoded rows of the layer's input; unused with one-hot input.
  int64_t input_bytes() const { return input_.encoded_bytes(); }
  void encode_input(const float* x, uint8_t* encoded) const { input_.encode(x, encoded); }
  // Whether encoded rows are plain floats, so that input rows can be used in place.
  bool reads_floats() const { return reads_floats_; }

  virtual void reserve(CpuWorkspace& workspace, int64_t streams, int64_t rows) const;
  // Advances all states. Returns -1, or the index of a state that has become non-finite.
  virtual int run(const Slice& slice, ThreadPool& pool, CpuWorkspace& workspace) const = 0;

 protected:
  struct State {
    int64_t at, width;
  };

  CpuLayer(const ModelFile& file, int64_t number, const Isa& isa, Weights weights, int64_t offset);

  // z = bias + W x for all rows of the slice.
  void project(const Slice& slice, ThreadPool& pool, CpuWorkspace& workspace) const;
  // The part of U to prefetch while a single-threaded product reads `count` panels of W after the
  // first `done`.
  Next recurrent_part(int64_t done, int64_t count) const;
  // Writes h before the slice into y.
  void encode_before(const Slice& slice) const;
  // y of the step before t, as input of U.
  const uint8_t* before(const Slice& slice, int64_t t) const {
    return slice.y + slice.output(t - 1, 0) * recurrent_.encoded_bytes();
  }
  int not_finite(const float* memory) const;

  bool (*all_finite_)(const float* x, int64_t n);
  int64_t H_, width_, stride_;  // width of z, and the stride of its rows
  // U and W share one array, which reaches the size of a huge page sooner than either of them. With
  // small pages, some sets of L2 would be assigned more lines than they can hold. W comes last
  // because it is read less often: a tail in small pages then belongs to W.
  Aligned<uint8_t> matrices_;
  Matrix input_, recurrent_;
  bool reads_floats_ = false;
  Aligned<float> bias_;
  Aligned<float> table_;  // one-hot input: bias + the column of W, [V, stride]
  std::vector<State> states_;
};

}  // namespace tsm
