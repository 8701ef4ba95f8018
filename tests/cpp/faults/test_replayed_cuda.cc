// Calls that are replayed as CUDA graphs: the same results as without graphs, few of them, and none
// where there can be none.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "failing_cuda.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/replayed.h"
#include "support/check.h"

namespace {

using tsm::cuda::check;
using tsm::cuda::Replayed;
using tsm::cuda::replays;

constexpr int kMany = 12, kFew = 3;  // launches
constexpr int kPlaces = 32;          // as in replayed.cu

// Whether there is a device; calls of kMany launches are replayed from now on.
bool can_replay() {
  int devices = 0;
  const bool found = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  if (!found) std::puts("skipped: no CUDA device");
  tsm::cuda::replay_from((kFew + kMany) / 2);
  return found;
}

struct Stream {
  Stream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream"); }
  ~Stream() { cudaStreamDestroy(stream); }
  operator uintptr_t() const { return reinterpret_cast<uintptr_t>(stream); }
  cudaStream_t stream = nullptr;
};

// A call copies bytes from one array to the other, each in a launch of its own.
struct Call {
  explicit Call(int count = kMany) : launches(count) {
    check(cudaMalloc(&memory, size_t(2 * launches)), "memory");
    from = static_cast<char*>(memory);
    to = from + launches;
  }
  ~Call() { cudaFree(memory); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Whether the bytes arrive, by these launches.
  bool arrive(Replayed& replayed, const Replayed::Enqueue& enqueue, cudaStream_t on = nullptr) {
    ++value;
    check(cudaMemsetAsync(from, value, size_t(launches), on), "the bytes");
    check(cudaMemsetAsync(to, 0, size_t(launches), on), "no bytes");
    const auto address = [](void* array) { return reinterpret_cast<uintptr_t>(array); };
    replayed.run({address(from), address(to)}, address(on), enqueue);
    std::vector<unsigned char> found(static_cast<size_t>(launches));
    check(cudaMemcpyAsync(found.data(), to, found.size(), cudaMemcpyDeviceToHost, on), "bytes");
    check(cudaStreamSynchronize(on), "the device");
    return found == std::vector<unsigned char>(found.size(), value);
  }
  bool arrive(Replayed& replayed, cudaStream_t on = nullptr) {
    return arrive(replayed, launched, on);
  }

  const int launches;
  void* memory = nullptr;
  char *from, *to;
  unsigned char value = 0;
  int enqueued = 0;  // how often the launches were made, one by one
  const Replayed::Enqueue launched = [this](uintptr_t stream) {
    ++enqueued;
    for (int i = 0; i < launches; ++i)
      check(cudaMemcpyAsync(to + i, from + i, 1, cudaMemcpyDeviceToDevice, cudaStream_t(stream)),
            "a launch");
  };
};

}  // namespace

TEST_CASE("the third call is one launch") {
  if (!can_replay()) return;
  const auto before = replays();
  {
    Replayed replayed;
    Call call;
    for (int i = 0; i < 6; ++i) CHECK(call.arrive(replayed));
    CHECK(call.enqueued == 2);
    CHECK(replays().calls == before.calls + 5);
    CHECK(replays().graphs == before.graphs + 1);
  }
  CHECK(replays().graphs == before.graphs);
}

TEST_CASE("few launches are not replayed") {
  if (!can_replay()) return;
  const auto before = replays();
  Replayed replayed;
  Call call(kFew);
  for (int i = 0; i < 6; ++i) CHECK(call.arrive(replayed));
  CHECK(call.enqueued == 7);  // and once to count them
  CHECK(replays().calls == before.calls);
  tsm::cuda::replay_from(kFew);
  CHECK(call.arrive(replayed));
  CHECK(replays().calls == before.calls + 1);
  tsm::cuda::replay_from(0);
  CHECK(call.arrive(replayed));
  CHECK(replays().calls == before.calls + 1);
}

TEST_CASE("more addresses than places") {
  if (!can_replay()) return;
  const auto before = replays();
  Replayed replayed;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < kPlaces + 8; ++i) calls.push_back(std::make_unique<Call>());
  for (int round = 0; round < 5; ++round)
    for (const auto& call : calls) CHECK(call->arrive(replayed));
  CHECK(replays().graphs == before.graphs + kPlaces);
  CHECK(replays().calls == before.calls + 4 * kPlaces);
  for (int i = 0; i < kPlaces; ++i) CHECK(calls[size_t(i)]->enqueued == 2);
}

TEST_CASE("addresses that do not come again") {
  if (!can_replay()) return;
  const auto before = replays();
  Replayed replayed;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 600; ++i) {
    calls.push_back(std::make_unique<Call>());
    CHECK(calls.back()->arrive(replayed));
  }
  CHECK(replays().graphs == before.graphs);
  Call last;  // old addresses make room
  for (int i = 0; i < 200; ++i) CHECK(last.arrive(replayed));
  CHECK(replays().graphs == before.graphs + 1);
}

TEST_CASE("addresses that come twice") {
  if (!can_replay()) return;
  const auto before = replays();
  Replayed replayed;
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 600; ++i) {
    calls.push_back(std::make_unique<Call>());
    for (int time = 0; time < 2; ++time) CHECK(calls.back()->arrive(replayed));
  }
  CHECK(replays().graphs <= before.graphs + kPlaces);
  CHECK(replays().calls > before.calls);
  CHECK(replays().calls < before.calls + 2 * kPlaces);  // one for each graph made
}

TEST_CASE("allocations that fail") {
  if (!can_replay()) return;
  int64_t points = 0;
  for (const int failing_call : {1, 2, 3}) {
    for (int64_t n = 1;; ++n) {
      bool fired = false;
      {
        Replayed replayed;
        Call call;
        for (int i = 1; i <= 4; ++i) {
          call.value = static_cast<unsigned char>(i);
          if (i == failing_call) failing::arm(n, false);
          replayed.run({reinterpret_cast<uintptr_t>(call.from)}, 0, call.launched);
          if (i == failing_call) fired = failing::disarm();
          CHECK(call.arrive(replayed));
        }
      }
      if (!fired) break;
      ++points;
    }
  }
  CHECK(points >= 4);  // places, a stream, a graph, its count
}

TEST_CASE("nothing is left") {
  if (!can_replay()) return;
  const int64_t live = failing::live;
  {
    Replayed replayed;
    Call call;
    for (int i = 0; i < 3; ++i) CHECK(call.arrive(replayed));
    Call other;
    int times = 0;
    const Replayed::Enqueue waits = [&](uintptr_t stream) {  // cannot be captured
      ++times;
      other.launched(stream);
      check(cudaStreamSynchronize(cudaStream_t(stream)), "the device");
    };
    for (int i = 0; i < 4; ++i) CHECK(other.arrive(replayed, waits));
    CHECK(times == 5);  // once in vain
    for (int i = 0; i < 3; ++i) CHECK(call.arrive(replayed));
    CHECK(call.enqueued == 5);
  }
  CHECK(failing::live == live);
}

TEST_CASE("an error of the launches") {
  if (!can_replay()) return;
  Replayed replayed;
  Call call;
  const Replayed::Enqueue fails = [](uintptr_t) { throw std::runtime_error("not launched"); };
  for (int i = 0; i < 3; ++i) CHECK_THROWS_WITH(call.arrive(replayed, fails), "not launched");
  CHECK(call.arrive(replayed));
}

TEST_CASE("during captures") {
  if (!can_replay()) return;
  Replayed replayed;
  Call call;
  const Stream stream, other;
  CHECK(call.arrive(replayed, stream.stream));
  // Another stream is being captured, in the mode that forbids most.
  check(cudaStreamBeginCapture(other.stream, cudaStreamCaptureModeGlobal), "a capture");
  replayed.run({reinterpret_cast<uintptr_t>(call.from), reinterpret_cast<uintptr_t>(call.to)},
               stream, call.launched);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(other.stream, &graph), "a capture");
  check(cudaGraphDestroy(graph), "a graph");
  CHECK(call.enqueued == 2);
  CHECK(call.arrive(replayed, stream.stream));
  CHECK(call.enqueued == 2);
  // The stream itself is.
  check(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeThreadLocal), "a capture");
  replayed.run({reinterpret_cast<uintptr_t>(call.from), reinterpret_cast<uintptr_t>(call.to)},
               stream, call.launched);
  check(cudaStreamEndCapture(stream.stream, &graph), "a capture");
  size_t nodes = 0;
  check(cudaGraphGetNodes(graph, nullptr, &nodes), "a graph");
  check(cudaGraphDestroy(graph), "a graph");
  CHECK(nodes == size_t(kMany));
  CHECK(call.enqueued == 3);
}

TEST_CASE("many threads") {
  if (!can_replay()) return;
  const auto before = replays();
  Replayed replayed;
  std::array<Call, 8> calls;  // no thread gets the memory of another one
  std::vector<std::thread> threads;
  for (size_t i = 0; i < calls.size(); i += 2)
    threads.emplace_back([&, i] {
      const Stream stream;
      for (int time = 0; time < 100; ++time)
        for (Call* call : {&calls[i], &calls[i + 1]}) CHECK(call->arrive(replayed, stream.stream));
    });
  for (std::thread& thread : threads) thread.join();
  for (const Call& call : calls) CHECK(call.enqueued == 2);
  CHECK(replays().calls == before.calls + 8 * 99);
}

TEST_CASE("after a fork") {
  if (!can_replay()) return;
  auto replayed = std::make_unique<Replayed>();
  Call call;
  for (int i = 0; i < 3; ++i) CHECK(call.arrive(*replayed));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    int direct = 0;
    replayed->run({reinterpret_cast<uintptr_t>(call.from), reinterpret_cast<uintptr_t>(call.to)}, 0,
                  [&](uintptr_t) { ++direct; });
    replayed.reset();
    _exit(direct == 1 ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(call.arrive(*replayed));
  CHECK(call.enqueued == 2);
}
