#include "engine/cpu/nru.h"

#include <cmath>
#include <cstring>

namespace tsm {
namespace {

Aligned<float> copied(const float* values, int64_t count) {
  Aligned<float> copy(count);
  std::memcpy(copy.data(), values, size_t(count) * 4);
  return copy;
}

// The outer product of two vectors [side], viewed as k rows of M numbers, with the factor of each
// row: 1 / max(5-norm, 1e-12), or 0 if the norm exceeds 5.0859e7.
class Rows {
 public:
  Rows(const float* halves, int64_t side, int64_t M)
      : a_(halves), b_(halves + side), side_(side), M_(M) {}

  float at(int64_t row, int64_t column) const {
    const int64_t flat = row * M_ + column;
    return a_[flat / side_] * b_[flat % side_];
  }
  double factor(int64_t row) const {
    double sum = 0;
    for (int64_t j = 0; j < M_; ++j) {
      const double x = std::fabs(double(at(row, j)));
      sum += x * x * x * x * x;
    }
    const double norm = std::pow(sum, 0.2);
    return norm > 5.0859e7 ? 0 : 1 / std::fmax(norm, 1e-12);
  }

 private:
  const float *a_, *b_;
  int64_t side_, M_;
};

}  // namespace

NruLayer::NruLayer(const ModelFile& file, int64_t number, const Isa& isa, Weights weights,
                   int64_t offset)
    : CpuLayer(file, number, isa, weights, offset) {
  const LayerConfig& config = file.config().layers[size_t(number)];
  const std::string name = "layers." + std::to_string(number) + ".";
  const MatrixKernels& kernels = isa.matrix[int(weights)];
  M_ = config.states[1].width;
  heads_ = config.heads;
  side_ = int64_t(std::llround(std::sqrt(double(M_ * heads_))));
  memory_ = Matrix(kernels, file.matrix(name + "weight_m", H_, M_));
  const char* const names[kMaps] = {"alpha", "beta", "write", "erase"};
  maps_stride_ = 0;
  for (int i = 0; i < kMaps; ++i) {
    const int64_t outputs = i < kWrite ? heads_ : 2 * side_;
    maps_[i] = Matrix(kernels, file.matrix(name + "weight_" + names[i], outputs, H_ + M_));
    bias_maps_[i] = copied(file.vector(name + "bias_" + names[i], outputs), outputs);
    map_at_[i] = maps_stride_;
    maps_stride_ += padded(outputs * 4) / 4;
  }
  if (config.layer_norm) {
    norm_scale_ = copied(file.vector(name + "norm_scale", H_), H_);
    norm_shift_ = copied(file.vector(name + "norm_shift", H_), H_);
  }
}

int64_t NruLayer::weight_bytes() const {
  int64_t total = CpuLayer::weight_bytes() + memory_.bytes();
  for (const Matrix& map : maps_) total += map.bytes();
  return total;
}

void NruLayer::reserve(CpuWorkspace& workspace, int64_t streams, int64_t rows) const {
  CpuLayer::reserve(workspace, streams, rows);
  workspace.encoded.reserve(streams * std::max(memory_.encoded_bytes(), maps_[0].encoded_bytes()));
  workspace.scratch.reserve(streams * (maps_stride_ + H_ + M_));
}

// h = relu(norm(z)), in place.
void NruLayer::hidden(float* z) const {
  if (norm_scale_.size() > 0) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < H_; ++i) mean += z[i];
    mean /= double(H_);
    for (int64_t i = 0; i < H_; ++i) square += (z[i] - mean) * (z[i] - mean);
    const double factor = 1 / std::sqrt(square / double(H_) + 1e-5);
    for (int64_t i = 0; i < H_; ++i) {
      z[i] = float((z[i] - mean) * factor) * norm_scale_[i] + norm_shift_[i];
    }
  }
  for (int64_t i = 0; i < H_; ++i) z[i] = z[i] < 0 ? 0 : z[i];  // keeps a NaN
}

// m = m' + mean_k(alpha write - beta erase)
void NruLayer::remember(const float* maps, float* m) const {
  const Rows write(maps + map_at_[kWrite], side_, M_), erase(maps + map_at_[kErase], side_, M_);
  for (int64_t k = 0; k < heads_; ++k) {
    const double share = 1 / double(heads_);
    const double alpha = share * maps[map_at_[kAlpha] + k] * write.factor(k);
    const double beta = share * maps[map_at_[kBeta] + k] * erase.factor(k);
    for (int64_t j = 0; j < M_; ++j) {
      m[j] += float(alpha * write.at(k, j) - beta * erase.at(k, j));
    }
  }
}

int NruLayer::run(const Slice& slice, ThreadPool& pool, CpuWorkspace& workspace) const {
  float* z = workspace.z.data();
  uint8_t* encoded = workspace.encoded.data();
  float* maps = workspace.scratch.data();
  float* both = maps + slice.streams * maps_stride_;
  project(slice, pool, workspace);
  encode_before(slice);
  for (int64_t t = 0; t < slice.steps; ++t) {
    const int64_t active = slice.active[t];
    float* rows = z + slice.first[t] * stride_;
    recurrent_.multiply(pool, active, before(slice, t), {rows, stride_});
    for (int64_t i = 0; i < active; ++i) {
      memory_.encode(slice.memory[i] + states_[1].at, encoded + i * memory_.encoded_bytes());
    }
    memory_.multiply(pool, active, encoded, {rows, stride_});
    for (int64_t i = 0; i < active; ++i) {
      hidden(rows + i * stride_);
      float* row = both + i * (H_ + M_);
      std::memcpy(row, rows + i * stride_, size_t(H_) * 4);
      std::memcpy(row + H_, slice.memory[i] + states_[1].at, size_t(M_) * 4);
      maps_[0].encode(row, encoded + i * maps_[0].encoded_bytes());
    }
    for (int k = 0; k < kMaps; ++k)
      maps_[k].multiply(pool, active, encoded,
                        {maps + map_at_[k], maps_stride_, bias_maps_[k].data()});
    for (int64_t i = 0; i < active; ++i) {
      float* memory = slice.memory[i];
      std::memcpy(memory + states_[0].at, rows + i * stride_, size_t(H_) * 4);
      remember(maps + i * maps_stride_, memory + states_[1].at);
      encode(memory, slice.y + slice.output(t, i) * encoded_bytes());
      const int bad = not_finite(memory);  // relu may drop a NaN
      if (bad >= 0) return bad;
    }
  }
  return -1;
}

}  // namespace tsm
