// Every allocation of a training step on a GPU fails once. These are the planner's allocations on
// the host; all other memory comes from torch. The call throws std::bad_alloc and launches nothing;
// the next call works as if nothing had happened.
#include <cstdio>
#include <vector>

#include "failing_cuda.h"
#include "kernels/cuda/train/recurrence.h"
#include "support/check.h"

namespace {

constexpr int64_t kT = 3, kH = 16;
constexpr size_t kScratch = size_t(1) << 24;

// Device memory filled with one byte value: a small number in float32 and in bfloat16.
struct Filled {
  Filled(size_t bytes, int byte) : bytes(bytes) {
    CHECK(cudaMalloc(&data, bytes) == cudaSuccess);
    CHECK(cudaMemset(data, byte, bytes) == cudaSuccess);
  }
  ~Filled() { cudaFree(data); }
  Filled(const Filled&) = delete;
  Filled& operator=(const Filled&) = delete;
  std::vector<char> read() const {
    std::vector<char> copy(bytes);
    CHECK(cudaMemcpy(copy.data(), data, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    return copy;
  }
  void* data = nullptr;
  const size_t bytes;
};

int64_t points = 0;

// Runs f with each of its allocations failing in turn; `unchanged` must hold after each failure.
template <class Function, class Condition>
void fail_everywhere(bool onward, const Function& f, const Condition& unchanged) {
  for (int64_t n = 1;; ++n) {
    failing::arm(n, onward);
    bool refused = false;
    try {
      f();
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    const bool fired = failing::disarm();
    CHECK(refused == fired);
    if (!fired) return;
    CHECK(unchanged());
    ++points;
  }
}

void test(const tsm::CellInfo& cell, tsm::DType dtype, int64_t B, bool onward) {
  const size_t each = dtype == tsm::DType::kFloat32 ? 4 : 2;
  const auto numbers = [&](int64_t count, size_t bytes) { return size_t(B * kH * count) * bytes; };
  const Filled zx(numbers(kT * cell.gates, each), 0x3c), state(numbers(cell.states, 4), 0);
  const Filled weight(size_t(cell.gates * kH * kH) * each, 0x3c), vectors(4096, 0x3f);
  const Filled y(numbers(kT, each), 0), last(numbers(cell.states, 4), 0), scratch(kScratch, 0);
  const std::vector<double> constants(8, 1e-3);
  tsm::RecurrenceForward args{};
  args.shape.B = B;
  args.shape.T = kT;
  args.shape.H = kH;
  args.zx = zx.data;
  args.weight_h = weight.data;
  args.state = state.data;
  args.vectors = vectors.data;
  args.constants = constants.data();
  args.y = y.data;
  args.last = last.data;
  const auto forward = [&] {
    const tsm::RecurrenceSetup setup{cell.name, dtype, 0, B, kH, false, kT, kH, false, true, false};
    tsm::RecurrenceCuda(setup).forward(args, scratch.data, 0);
  };
  const std::vector<char> nothing = y.read();
  fail_everywhere(onward, forward, [&] { return y.read() == nothing; });
  const std::vector<char> found = y.read(), states = last.read();
  CHECK(found != nothing);
  forward();
  CHECK((y.read() == found && last.read() == states));
  int64_t bytes = -1;  // backward: its plan, by asking for its memory; small ones need none
  const auto backward = [&] {
    const tsm::RecurrenceSetup setup{cell.name, dtype, 0, B, kH, true, kT, kH, false, true, false};
    bytes = tsm::RecurrenceCuda(setup).workspace();
  };
  fail_everywhere(onward, backward, [&] { return bytes == -1; });
  CHECK(bytes >= 0);
}

}  // namespace

TEST_CASE("allocations of a layer that fail") {
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess || device.major < 8) {
    std::puts("skipped: no CUDA device of compute capability 8.0");
    return;
  }
  // Plans are cached by size, so each of these sizes needs a new plan.
  for (const tsm::CellInfo& cell : tsm::compiled_cells()) {
    for (const tsm::DType dtype : {tsm::DType::kFloat32, tsm::DType::kBFloat16}) {
      test(cell, dtype, 2, false);
      test(cell, dtype, 3, true);
    }
  }
  std::printf("%lld allocations failed\n", static_cast<long long>(points));
  CHECK(points > 100);
}
