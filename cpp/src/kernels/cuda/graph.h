// CUDA graphs: launches that are captured once and then replayed.
#pragma once
#include <memory>
#include <type_traits>

#include "kernels/cuda/check.h"

namespace tsm::cuda {

struct Destroy {
  void operator()(cudaGraph_t made) const { cudaGraphDestroy(made); }
  void operator()(cudaGraphExec_t made) const { cudaGraphExecDestroy(made); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy>;
using ReadyGraph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;

// What `enqueue` puts on `stream`, which runs nothing of it.
template <class Function>
Graph captured(cudaStream_t stream, cudaStreamCaptureMode mode, const Function& enqueue) {
  check(cudaStreamBeginCapture(stream, mode), "a graph");
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();  // clears the error of a capture that has failed
    const Graph incomplete(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "a graph");
  return Graph(graph);
}

inline ReadyGraph instantiated(const Graph& graph) {
  cudaGraphExec_t ready = nullptr;
  check(cudaGraphInstantiate(&ready, graph.get(), 0), "a graph");
  return ReadyGraph(ready);
}

}  // namespace tsm::cuda
