#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/forks.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/replayed.h"

namespace tsm::cuda {
namespace {

// Layers of the same size share their launches, each with addresses of its own.
constexpr size_t kPlaces = 32;
// A place is given to other addresses after this many calls without its own.
constexpr uint64_t kRecent = 128;
// After the first kPlaces graphs, a new one needs this many replays per graph made before.
constexpr int64_t kReplaysPerGraph = 4;
// In all graphs of the process: each takes memory of the host and of the device.
constexpr int64_t kMostNodes = int64_t(1) << 17;

std::atomic<int64_t> all_nodes{0}, all_graphs{0}, all_replays{0};

std::atomic<int64_t>& fewest_launches() {
  static std::atomic<int64_t> fewest = [] {
    const char* const given = std::getenv("TSM_CUDA_REPLAY");
    if (!given) return int64_t(0);
    char* end = nullptr;
    const int64_t number = std::strtoll(given, &end, 10);
    require(*given && !*end && number >= 0,
            std::string("TSM_CUDA_REPLAY = '") + given + "'; accepted: a number of launches, or 0");
    return number;
  }();
  return fewest;
}

// For the scope, this thread may do what a capture by another one or by the caller would forbid:
// nothing here waits for the device or uses their streams.
class Unrestricted {
 public:
  Unrestricted() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Unrestricted() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Unrestricted(const Unrestricted&) = delete;
  Unrestricted& operator=(const Unrestricted&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess)
    return status != cudaStreamCaptureStatusNone;
  cudaGetLastError();  // the launches will fail likewise
  return true;
}

// A graph that counts.
class Counted {
 public:
  Counted(ReadyGraph graph, int64_t nodes) : graph_(std::move(graph)), nodes_(nodes) {
    all_nodes += nodes_;
    ++all_graphs;
  }
  ~Counted() {
    all_nodes -= nodes_;
    --all_graphs;
    const Unrestricted scope;
    graph_.reset();  // a graph that still runs is freed after that
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  void launch(cudaStream_t stream) const {
    check(cudaGraphLaunch(graph_.get(), stream), "a graph");
  }

 private:
  ReadyGraph graph_;
  const int64_t nodes_;
};

// Whether graphs of that many launches are wanted now.
bool wanted(int64_t nodes) {
  const int64_t fewest = fewest_launches();
  return fewest > 0 && nodes >= fewest && all_nodes + nodes <= kMostNodes;
}

}  // namespace

struct Replayed::Kept {
  struct Place {
    Addresses addresses;
    uint64_t used;  // the last call with these addresses
    std::unique_ptr<const Counted> graph;
  };

  std::mutex mutex;
  std::vector<Place> places;
  uint64_t calls = 0;
  int64_t graphs = 0, replays = 0;  // made so far

  // The place of these addresses; null if they are new. New ones are remembered if there is a place
  // for them. Addresses in use keep theirs: if there are too many, some of them have graphs,
  // instead of all of them losing their graphs in turn.
  Place* find(const Addresses& addresses) {
    ++calls;
    for (Place& place : places) {
      if (place.addresses != addresses) continue;
      place.used = calls;
      return &place;
    }
    if (places.size() < kPlaces) {
      places.push_back({addresses, calls, nullptr});
      return nullptr;
    }
    const auto oldest = std::min_element(
        places.begin(), places.end(), [](const auto& a, const auto& b) { return a.used < b.used; });
    if (calls - oldest->used > kRecent) *oldest = {addresses, calls, nullptr};
    return nullptr;
  }

  // Whether graphs have been used often enough for one more.
  bool pays() const { return replays >= kReplaysPerGraph * (graphs - int64_t(kPlaces)); }
};

Replayed::Replayed() : forks_((count_forks(), forks())), kept_(std::make_unique<Kept>()) {}

Replayed::~Replayed() {
  // A forked process has no CUDA context: graphs are not destroyed there.
  if (forks() != forks_)
    for (Kept::Place& place : kept_->places) place.graph.release();
}

void Replayed::run(const Addresses& addresses, uintptr_t stream, const Enqueue& enqueue) {
  const int64_t fewest = fewest_launches(), nodes = nodes_;
  const bool few = fewest == 0 || (nodes > 0 && nodes < fewest);
  // In a forked process the mutex may be locked forever.
  if (few || failed_ || forks() != forks_ || is_captured(cudaStream_t(stream)))
    return enqueue(stream);
  {
    const std::lock_guard<std::mutex> lock(kept_->mutex);
    try {
      if (replay(*kept_, addresses, stream, enqueue)) return;
    } catch (const std::exception&) {  // if graphs are not the reason, launching fails likewise
      failed_ = true;
      kept_->places.clear();
    }
  }
  enqueue(stream);
}

// Whether a graph has done the work.
bool Replayed::replay(Kept& kept, const Addresses& addresses, uintptr_t stream,
                      const Enqueue& enqueue) {
  Kept::Place* const place = kept.find(addresses);
  if (!place) return false;
  if (!place->graph) {
    if (!kept.pays() || (nodes_ > 0 && !wanted(nodes_))) return false;
    const Unrestricted scope;
    const Stream own;
    const Graph graph = captured(own, cudaStreamCaptureModeRelaxed,
                                 [&] { enqueue(reinterpret_cast<uintptr_t>(cudaStream_t(own))); });
    size_t nodes = 0;
    check(cudaGraphGetNodes(graph.get(), nullptr, &nodes), "a graph");
    nodes_ = std::max<int64_t>(int64_t(nodes), 1);
    if (!wanted(nodes_)) return false;
    place->graph = std::make_unique<const Counted>(instantiated(graph), nodes_);
    ++kept.graphs;
  }
  place->graph->launch(cudaStream_t(stream));
  ++kept.replays;
  ++all_replays;
  return true;
}

void replay_from(int64_t launches) {
  require(launches >= 0, "launches = " + std::to_string(launches) + "; accepted: 0 or more");
  fewest_launches() = launches;
}

Replays replays() { return {all_graphs, all_replays}; }

}  // namespace tsm::cuda
