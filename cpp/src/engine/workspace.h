// Memory that a call works in. A model keeps as many as calls ever ran at once, each grown to what
// it was asked for, so that after the first calls nothing is allocated.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/aligned.h"
#include "engine/device.h"
#include "engine/overlap.h"

namespace tsm {

// An array that only grows; growing loses what it held.
template <class T>
class Buffer {
 public:
  void reserve(int64_t count) {
    if (memory_.size() < count) memory_ = Aligned<T>(count);
  }
  T* data() const { return memory_.data(); }

 private:
  Aligned<T> memory_;
};

// A row of logits that is wanted: of the encoded row `row`, written to `out`; or, with a token, its
// log-probability alone.
struct Wanted {
  int64_t row;
  int64_t token;  // -1: logits
  float* out;
};

struct Workspace {
  // That were computed in it: they say which way to read the weights (multiply_sweep).
  int64_t slices = 0, steps = 0;
  // Of the whole call.
  Buffer<int64_t> order;
  Buffer<float> backup;
  Buffer<Slot*> slots;
  Buffer<OutputSpan> spans;
  // Of a slice (engine/layer.h).
  Buffer<float*> memory;
  Buffer<int64_t> active, first, tokens;
  Buffer<float> dt, rows, z, scratch;
  Buffer<uint8_t> x, y[2], encoded;  // y: of one layer and of the one before it
  // Of the head and of sampling.
  Buffer<Wanted> wanted;
  Buffer<uint8_t> gathered;
  Buffer<float> logits;
  Buffer<double> weights;
  Buffer<int64_t> candidates;
};

// As many of T as were ever used at once.
template <class T>
class Leases {
 public:
  std::unique_ptr<T> take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<T> found = std::move(free_.back());
        free_.pop_back();
        return found;
      }
      free_.reserve(++made_);  // so that giving back never allocates
    }
    return std::make_unique<T>();
  }
  void give(std::unique_ptr<T> workspace) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  size_t made_ = 0;
  std::vector<std::unique_ptr<T>> free_;
};

// One of them for as long as a call runs.
template <class T>
class Lease {
 public:
  explicit Lease(Leases<T>& from) : from_(from), workspace_(from.take()) {}
  ~Lease() { from_.give(std::move(workspace_)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  T& operator*() const { return *workspace_; }

 private:
  Leases<T>& from_;
  std::unique_ptr<T> workspace_;
};

}  // namespace tsm
