// One recurrent layer of an element-wise cell on the device.
#pragma once
#include <vector>

#include "engine/cuda/matrix.h"
#include "engine/cuda/workspace.h"
#include "engine/file/config.h"
#include "kernels/cuda/stream/many_streams_sm90.h"
#include "kernels/cuda/stream/product.h"
#include "kernels/cuda/stream/stream.h"

namespace tsm::cuda {

// What the device can do.
struct Chip {
  int processors;    // multiprocessors
  int shared_limit;  // bytes of shared memory per block
  bool hopper;       // compute capability 9.0: kernels/cuda/stream/many_streams_sm90.h
};

// The input of a layer: rows of activations, or columns of its own table.
struct InputRows {
  const void* x = nullptr;         // [.., stride]
  int64_t stride = 0;              //
  const int32_t* index = nullptr;  // [rows] row of x, or token; null: row r
};

// A slice, and what the host needs to know about it.
struct Slices {
  Rows rows;
  const int32_t *active, *first;  // as in `rows`, on the host
  const uint32_t* tag;            // for the exchange: each layer uses steps + 1 tags
  int64_t count() const { return first[rows.steps]; }
};

// With up to this many streams, blocks keep U on the chip and exchange h. With more, a step has
// enough rows to fill the device.
constexpr int64_t kFewStreams = 64;

class CudaLayer {
 public:
  // `at`: offsets of the layer's states in a stream's states.
  CudaLayer(const ModelFile& file, int64_t number, const std::vector<int64_t>& at, Weights kind,
            const Chip& chip);

  int64_t hidden_size() const { return H_; }
  int64_t stride() const { return padded_depth(H_); }  // of a row of y
  int64_t z_width() const { return width_; }
  int64_t bytes() const;
  int64_t words(int64_t streams) const {  // of the exchange
    return exchange_words(kind_, int(H_), int(streams));
  }

  // Advances the states of a slice; y [streams + rows, stride]. With `before`, y begins with h
  // before the slice.
  void run(const Slices& slice, const InputRows& input, void* y, bool before,
           CudaWorkspace& workspace) const;

  // The same for many streams. x and h are blocked (kernels/cuda/stream/many_streams_sm90.h) and
  // hold one part per step; h also has a first part for the states before the slice. If x is null,
  // `tokens` select columns of the table. y: null, or rows as above. `input`: rows that are blocked
  // first, for x.
  bool runs_blocked() const { return step_ != nullptr; }
  void run_blocked(const Slices& slice, const BlockedInput& input, const void* x,
                   const int32_t* tokens, void* h, void* y, bool before,
                   CudaWorkspace& workspace) const;

 private:
  CellArguments described(void* y, CudaWorkspace& workspace) const;
  void project(const InputRows& input, int64_t rows, CudaWorkspace& workspace) const;
  void clear_padding(void* y, int64_t rows, CudaWorkspace& workspace) const;
  void run_few(const Slices& slice, const CellArguments& layer, const InputRows& input,
               CudaWorkspace& workspace) const;
  void run_many(const Slices& slice, const CellArguments& layer, CudaWorkspace& workspace) const;

  Weights kind_;
  Chip chip_;
  const CudaCell* cell_;
  const StepCellSm90* step_ = nullptr;
  int number_;
  bool has_u_;  // without U every slice runs as for many streams, without the product
  int64_t I_, H_, width_;
  std::vector<int64_t> at_;
  std::vector<float> constants_;
  CudaMatrix input_, recurrent_;
  DeviceArray<uint8_t> tiles_;         // the recurrent matrix, packed for `recurrence`
  DeviceArray<uint8_t> step_weights_;  // both matrices, packed for `step_`
  DeviceArray<float> bias_, prepared_;
  DeviceArray<float> table_;  // one-hot input: bias + the column of W, [V, width]
};

}  // namespace tsm::cuda
