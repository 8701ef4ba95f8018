// The resources of one call on the device: its own CUDA stream, and memory that never shrinks. A
// model keeps one per concurrent call.
#pragma once
#include <cstring>
#include <vector>

#include "engine/cuda/graphs.h"
#include "engine/cuda/memory.h"
#include "kernels/cuda/stream/stream.h"

namespace tsm::cuda {

class Queue {
 public:
  Queue() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"); }
  ~Queue() { cudaStreamDestroy(stream_); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  operator cudaStream_t() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "the device"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Arrays that are copied to the device together: written on the host back to back, then sent in one
// copy.
class StagingBuffer {
 public:
  // An array on both sides.
  template <class T>
  struct Part {
    T* host = nullptr;
    T* device = nullptr;
  };

  void begin(int64_t bytes) {  // room for all parts
    host_.reserve(bytes);
    device_.reserve(bytes);
    used_ = 0;
  }
  template <class T>
  static constexpr int64_t room(int64_t count) {
    return (count * int64_t(sizeof(T)) + 63) / 64 * 64;
  }
  template <class T>
  Part<T> add(int64_t count) {
    const int64_t at = used_;
    used_ += room<T>(count);
    return {reinterpret_cast<T*>(host_.data() + at), reinterpret_cast<T*>(device_.data() + at)};
  }
  void send(cudaStream_t stream) const {
    if (used_ <= kSmall) return send_small(host_.data(), device_.data(), used_, stream);
    check(cudaMemcpyAsync(device_.data(), host_.data(), size_t(used_), cudaMemcpyHostToDevice,
                          stream),
          "a copy to the device");
  }

 private:
  static constexpr int64_t kSmall = int64_t(1) << 16;
  HostArray<char> host_;
  DeviceArray<char> device_;
  int64_t used_ = 0;
};

// Results that go to one contiguous output.
struct Run {
  float* out;
  int64_t count;
};

// The outputs that a call needs from a slice, on the host: the rows of y, the tokens (for
// log-probabilities only), and the destinations.
struct WantedRows {
  std::vector<int32_t> rows, tokens;
  std::vector<Run> runs;
  // `width`: of a result. Outputs that follow each other in memory are one run.
  void add_run(float* out, int64_t count, int64_t width) {
    if (!runs.empty() && runs.back().out + runs.back().count * width == out)
      runs.back().count += count;
    else
      runs.push_back({out, count});
  }
  void clear() {
    rows.clear();
    tokens.clear();
    runs.clear();
  }
};

struct CudaWorkspace {
  Queue queue;
  StagingBuffer staging;
  Graphs graphs;
  WantedRows logits_wanted, scores_wanted;
  std::vector<int32_t> active, first;  // of a slice
  DeviceArray<char> x, y[2];           // activations; y: of one layer and of the one before it
  DeviceArray<char> blocked_x, blocked_h[2];  // kernels/cuda/stream/many_streams_sm90.h
  DeviceArray<uint32_t> h_ready;
  DeviceArray<float> z, logits, scores;
  HostArray<float> results;
  DeviceArray<uint64_t> exchange;
  uint32_t tag = 1;    // larger than every tag in `exchange`
  HostArray<int> bad;  // [layers] written by the device: index of a non-finite state, or -1

  // Makes room for `words` words, and returns the first of `count` unused tags.
  uint32_t take_tags(int64_t words, int64_t count) {
    const bool grown = exchange.reserve(words);
    if (grown || int64_t(tag) + count >= int64_t(1) << 31) {
      check(cudaMemsetAsync(exchange.data(), 0, size_t(exchange.bytes()), queue),
            "clearing memory");
      tag = 1;
    }
    const uint32_t first = tag;
    tag += uint32_t(count);
    return first;
  }
};

}  // namespace tsm::cuda
