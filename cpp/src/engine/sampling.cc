#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "core/error.h"
#include "core/finite.h"

namespace tsm {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Picks the candidate into whose share of the total the uniform number falls.
template <class Token>
int64_t pick(int64_t count, double total, double uniform, const double* weights,
             const Token& token) {
  const double target = uniform * total;
  double sum = 0;
  int64_t last = -1;  // last nonzero weight, in case rounding keeps the sum below the target
  for (int64_t i = 0; i < count; ++i) {
    const double weight = weights[token(i)];
    if (weight > 0) last = token(i);
    sum += weight;
    if (sum > target) return token(i);
  }
  return last;
}

}  // namespace

void check(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature)) {
    throw Error("temperature = " + number(sampling.temperature) + "; accepted: 0 or more, finite");
  }
  if (sampling.top_k < 0) {
    throw Error("top_k = " + std::to_string(sampling.top_k) + "; accepted: 0 (all) or more");
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    throw Error("top_p = " + number(sampling.top_p) + "; accepted: above 0, up to 1");
  }
}

double uniform(uint64_t seed, int64_t position) {
  return double(mixed(mixed(seed) ^ uint64_t(position)) >> 11) * 0x1p-53;
}

int64_t draw(const float* logits, int64_t count, const Sampling& sampling, double uniform,
             double* weights, int64_t* heap) {
  if (!all_finite(logits, count)) return -1;
  const int64_t best = std::max_element(logits, logits + count) - logits;
  if (sampling.temperature == 0 || sampling.top_k == 1) return best;
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = std::exp((double(logits[i]) - double(logits[best])) / sampling.temperature);
    total += weights[i];
  }
  const int64_t most = sampling.top_k == 0 ? count : std::min(sampling.top_k, count);
  if (most == count && sampling.top_p == 1) {
    return pick(count, total, uniform, weights, [](int64_t i) { return i; });
  }
  // A heap yields the most probable tokens in order, and only as many as needed.
  for (int64_t i = 0; i < count; ++i) heap[i] = i;
  const auto less = [logits](int64_t a, int64_t b) {
    return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
  };
  std::make_heap(heap, heap + count, less);
  if (most < count) {  // top_p is relative to the total of the top_k tokens
    int64_t left = count;
    total = 0;
    for (int64_t i = 0; i < most; ++i, --left) {
      std::pop_heap(heap, heap + left, less);
      total += weights[heap[left - 1]];
    }
    std::make_heap(heap, heap + count, less);
  }
  double kept = 0;
  int64_t left = count;
  while (count - left < most && kept < sampling.top_p * total) {
    std::pop_heap(heap, heap + left, less);
    kept += weights[heap[--left]];
  }
  std::reverse(heap + left, heap + count);
  return pick(count - left, kept, uniform, weights, [=](int64_t i) { return heap[left + i]; });
}

}  // namespace tsm
