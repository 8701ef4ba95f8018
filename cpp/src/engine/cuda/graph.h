// CUDA graphs: the launches of repeated calls of the same shape are recorded once and then
// replayed.
#pragma once
#include <array>
#include <vector>

#include "engine/cuda/memory.h"

namespace tsm::cuda {

class Graphs {
 public:
  // Everything that the launches of a call depend on: sizes, and the addresses of its memory.
  // Inputs that change from call to call are read from that memory.
  using Key = std::array<uint64_t, 20>;

  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs() {
    for (const Entry& entry : entries_) release(entry);
  }

  // Runs the work that `enqueue` puts on `stream`. The first time for a key, `enqueue` runs
  // directly, because memory may still grow. The second time it is recorded; after that it is not
  // called again.
  template <class Function>
  void run(const Key& key, cudaStream_t stream, const Function& enqueue) {
    for (Entry& entry : entries_) {
      if (entry.key != key) continue;
      if (!entry.graph) entry.graph = recorded(stream, enqueue);
      check(cudaGraphLaunch(entry.graph, stream), "a graph");
      return;
    }
    entries_.reserve(kMost);  // nothing may fail once the work is queued
    enqueue();                // before the key is stored: it may fail for lack of memory
    if (entries_.size() == kMost) {
      release(entries_.front());
      entries_.erase(entries_.begin());
    }
    entries_.push_back({key, nullptr});
  }

 private:
  struct Entry {
    Key key;
    cudaGraphExec_t graph;
  };

  template <class Function>
  static cudaGraphExec_t recorded(cudaStream_t stream, const Function& enqueue) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a graph");
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "a graph");
    cudaGraphExec_t ready = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "a graph");
    return ready;
  }
  static void release(const Entry& entry) {
    if (entry.graph) cudaGraphExecDestroy(entry.graph);
  }

  static constexpr size_t kMost = 16;
  std::vector<Entry> entries_;
};

}  // namespace tsm::cuda
