#include "engine/cuda/head.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/stream/product.h"

namespace tsm::cuda {
namespace {

constexpr int64_t kFloatsAtOnce = int64_t(1) << 24, kRowsAtLeast = 64;
// Up to this many results are written by the kernels to pinned memory of the host. More are copied.
constexpr int64_t kWrittenToHost = int64_t(1) << 14;

}  // namespace

CudaHead::CudaHead(const ModelFile& file, Weights kind) : kind_(kind) {
  const Config& config = file.config();
  const char* name = config.tied ? "embedding" : "output.weight";
  weight_ =
      CudaMatrix(kind, file.matrix(name, config.output_size, config.layers.back().hidden_size));
  bias_ = uploaded(file.vector("output.bias", config.output_size), config.output_size);
}

int64_t CudaHead::block() const {
  return std::max(kRowsAtLeast, kFloatsAtOnce / weight_.outputs());
}

void CudaHead::run(const void* y, int64_t stride, const Outputs& wanted,
                   CudaWorkspace& workspace) const {
  for (int64_t first = 0; first < wanted.count; first += block()) {
    const int64_t count = std::min(block(), wanted.count - first);
    enqueue(y, stride, wanted, first, count, workspace);
    workspace.queue.wait();
    deliver(wanted, first, count, workspace);
  }
}

void CudaHead::enqueue(const void* y, int64_t stride, const Outputs& wanted, int64_t first,
                       int64_t count, CudaWorkspace& workspace) const {
  const int64_t width = weight_.outputs(), results = count * floats(wanted);
  const Queue& queue = workspace.queue;
  const bool to_host = results <= kWrittenToHost;
  workspace.results.reserve(results);
  // Where the last kernel writes: its own memory, or the host's.
  const auto destination = [&](DeviceArray<float>& own, bool last) {
    if (last && to_host) return workspace.results.data();
    own.reserve(count * (last ? floats(wanted) : width));
    return own.data();
  };
  float* found = destination(workspace.logits, !wanted.tokens);
  const int64_t skipped =
      wanted.rows ? 0 : (wanted.first_row + first) * stride * (kind_ == Weights::kFloat32 ? 4 : 2);
  product(kind_,
          {count, width, weight_.depth(), static_cast<const char*>(y) + skipped, stride,
           wanted.rows ? wanted.rows + first : nullptr, weight_.data(), weight_.scale(),
           bias_.data(), found},
          queue);
  if (wanted.tokens) {
    float* const scores = destination(workspace.scores, true);
    log_probs(found, wanted.tokens + first, count, width, scores, queue);
    found = scores;
  }
  if (!to_host)
    check(cudaMemcpyAsync(workspace.results.data(), found, size_t(results) * 4,
                          cudaMemcpyDeviceToHost, queue),
          "a copy from the device");
}

void CudaHead::deliver(const Outputs& wanted, int64_t first, int64_t count,
                       const CudaWorkspace& workspace) const {
  const int64_t each = floats(wanted), last = first + count;
  int64_t at = 0;  // index of the first result of the run
  for (const Run& run : *wanted.runs) {
    const int64_t begin = std::max(at, first), end = std::min(at + run.count, last);
    if (begin < end)
      std::memcpy(run.out + (begin - at) * each, workspace.results.data() + (begin - first) * each,
                  size_t((end - begin) * each) * 4);
    at += run.count;
  }
}

}  // namespace tsm::cuda
