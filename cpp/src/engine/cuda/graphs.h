// The launches of repeated calls of the same shape are captured once and then replayed.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "kernels/cuda/graph.h"

namespace tsm::cuda {

class Graphs {
 public:
  // Everything that the launches of a call depend on: sizes, and the addresses of its memory.
  // Inputs that change from call to call are read from that memory.
  using Key = std::array<uint64_t, 20>;

  // Runs the work that `enqueue` puts on `stream`. The first time for a key, `enqueue` runs
  // directly, because memory may still grow. The second time it is captured; after that it is not
  // called again.
  template <class Function>
  void run(const Key& key, cudaStream_t stream, const Function& enqueue) {
    for (Entry& entry : entries_) {
      if (entry.key != key) continue;
      if (!entry.graph)
        entry.graph = instantiated(captured(stream, cudaStreamCaptureModeThreadLocal, enqueue));
      check(cudaGraphLaunch(entry.graph.get(), stream), "a graph");
      return;
    }
    entries_.reserve(kMost);  // nothing may fail once the work is queued
    enqueue();                // before the key is stored: it may fail for lack of memory
    if (entries_.size() == kMost) entries_.erase(entries_.begin());
    entries_.push_back({key, nullptr});
  }

 private:
  struct Entry {
    Key key;
    ReadyGraph graph;
  };

  static constexpr size_t kMost = 16;
  std::vector<Entry> entries_;
};

}  // namespace tsm::cuda
