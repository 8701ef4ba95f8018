// stream_bench MODEL.tsm [float32|bfloat16|int8] [streams] [steps] [threads]: prints microseconds
// per step for chunks of `steps` steps, fed to `streams` streams at once, and the time to read the
// weights.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "bench/feed_loop.h"
#include "bench/read_floor.h"

namespace {

using namespace tsm;

constexpr double kTurn = 0.02;  // seconds
constexpr int kTurns = 25;

// Median time of one call; each sample is long compared with the clock's resolution.
template <class Loop>
double median(Loop& loop) {
  const auto calls = int64_t(std::max(1.0, kTurn / std::max(loop.run(2) / 2, 1e-9)));
  std::vector<double> times;
  for (int i = 0; i < kTurns; ++i) times.push_back(loop.run(calls) / double(calls));
  std::nth_element(times.begin(), times.begin() + kTurns / 2, times.end());
  return times[kTurns / 2];
}

int64_t number(int argc, char** argv, int i) {
  const int64_t value = argc > i ? std::atoll(argv[i]) : 1;
  return value < 1 ? 1 : value;
}

int run(int argc, char** argv) {
  const std::string dtype = argc > 2 ? argv[2] : "float32";
  if (argc < 2 || argc > 6) {
    std::fprintf(stderr,
                 "stream_bench MODEL.tsm [float32|bfloat16|int8] [streams] [steps] [threads]\n");
    return 2;
  }
  const int64_t streams = number(argc, argv, 3), steps = number(argc, argv, 4);
  const LoadOptions options = bench::options_of(dtype, int(number(argc, argv, 5)));
  bench::FeedLoop loop(argv[1], options, streams, steps);
  // Estimates the size of U, which is read at every step; the other weights are read once per
  // chunk.
  int64_t all = 0, hidden = 0;
  for (const LayerInfo& layer : loop.model().layers()) {
    all += layer.hidden_size * (layer.input_size + layer.hidden_size);
    hidden += layer.hidden_size * layer.hidden_size;
  }
  const int64_t bytes = loop.model().weight_bytes();
  const auto recurrent = int64_t(double(bytes) * double(hidden) / double(all));
  bench::ReadFloor floor(bytes - recurrent, recurrent, steps);
  const double step = median(loop) / double(steps), least = median(floor) / double(steps);
  std::printf("%s %s, %lld streams, chunks of %lld: %.2f us per step, weights read in %.2f us\n",
              loop.model().level(), dtype.c_str(), (long long)streams, (long long)steps, step * 1e6,
              least * 1e6);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stream_bench: %s\n", error.what());
    return 2;
  }
}
