#include "engine/cpu/layer.h"

#include <algorithm>
#include <cstring>

#include "core/bfloat16.h"
#include "engine/cpu/elementwise.h"
#include "engine/cpu/nru.h"

namespace tsm {
namespace {

float element(const MatrixSource& w, int64_t i, int64_t j) {
  const int64_t at = i * w.row + j * w.column;
  switch (w.type) {
    case MatrixSource::kBFloat16:
      return float(static_cast<const bfloat16*>(w.data)[at]);
    case MatrixSource::kInt8:
      return w.scales[i] * float(static_cast<const int8_t*>(w.data)[at]);
    default:
      return static_cast<const float*>(w.data)[at];
  }
}

// The number of floats from one row of z to the next. Rows that are a multiple of a page apart
// would share a few sets of L1, and a load from one would wait for stores to another (4K aliasing).
int64_t row_stride(int64_t width) {
  const int64_t bytes = padded(width * 4);
  return (bytes % 4096 == 0 ? bytes + kAlignment : bytes) / 4;
}

}  // namespace

std::unique_ptr<CpuLayer> CpuLayer::load(const ModelFile& file, int64_t number, const Isa& isa,
                                         Weights weights, int64_t offset) {
  if (file.config().layers[size_t(number)].program) {
    return std::make_unique<ElementwiseLayer>(file, number, isa, weights, offset);
  }
  return std::make_unique<NruLayer>(file, number, isa, weights, offset);
}

CpuLayer::CpuLayer(const ModelFile& file, int64_t number, const Isa& isa, Weights weights,
                   int64_t offset) {
  const LayerConfig& config = file.config().layers[size_t(number)];
  const std::string name = "layers." + std::to_string(number) + ".";
  const MatrixKernels& kernels = isa.matrix[int(weights)];
  all_finite_ = isa.all_finite;
  H_ = config.hidden_size;
  width_ = config.gates() * H_;
  stride_ = row_stride(width_);
  const MatrixSource w = file.matrix(name + "weight_x", width_, config.input_size);
  // Without U, use a matrix without outputs: it still defines the encoding of y.
  const MatrixSource none{MatrixSource::kFloat32, nullptr, 0, H_, H_, 1, nullptr};
  const MatrixSource u = config.recurrent ? file.matrix(name + "weight_h", width_, H_) : none;
  const float* bias = file.vector(name + "bias", width_);
  const bool one_hot = number == 0 && file.config().input == Config::Input::kOneHot;
  const int64_t u_bytes = padded(packed_bytes(kernels, u));
  matrices_ = Aligned<uint8_t>(u_bytes + (one_hot ? 0 : packed_bytes(kernels, w)));
  recurrent_ = Matrix(kernels, u, matrices_.data());
  if (one_hot) {
    // Each sum has a single term, so the column is simply added to the bias, for any kind of
    // weights.
    table_ = Aligned<float>(config.input_size * stride_);
    for (int64_t i = 0; i < width_; ++i) {
      for (int64_t j = 0; j < config.input_size; ++j) {
        table_[j * stride_ + i] = bias[i] + element(w, i, j);
      }
    }
  } else {
    input_ = Matrix(kernels, w, matrices_.data() + u_bytes);
    reads_floats_ = weights == Weights::kFloat32 && input_bytes() == w.inputs * 4;
    bias_ = Aligned<float>(width_);
    std::memcpy(bias_.data(), bias, size_t(width_) * 4);
  }
  for (const StateInfo& state : config.states) {
    states_.push_back({offset, state.width});
    offset += padded(state.width * 4) / 4;
  }
}

int64_t CpuLayer::weight_bytes() const {
  return input_.bytes() + recurrent_.bytes() + (bias_.size() + table_.size()) * 4;
}

void CpuLayer::reserve(CpuWorkspace& workspace, int64_t streams, int64_t rows) const {
  workspace.z.reserve(rows * stride_);
  for (Growing<uint8_t>& y : workspace.y) y.reserve((streams + rows) * encoded_bytes());
}

void CpuLayer::project(const Slice& slice, ThreadPool& pool, CpuWorkspace& workspace) const {
  float* const z = workspace.z.data();
  const int64_t rows = slice.rows();
  if (!slice.x) {
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(z + r * stride_, &table_[slice.tokens[r] * stride_], size_t(width_) * 4);
    return;
  }
  const int64_t panels = input_.panels();
  const bool down = workspace.slices % 2 != 0;
  split(pool, panels, width_ * input_.inputs() * rows, [&](int64_t begin, int64_t end) {
    const auto part = [&](int64_t first, int64_t last, int64_t) {
      const int64_t done = down ? end - last : first - begin;
      input_.multiply_panels(rows, slice.x, {z, stride_, bias_.data()}, first, last,
                             end - begin == panels ? recurrent_part(done, last - first) : Next());
    };
    for_panels(begin, end, input_.bytes() / panels, down, part);
  });
}

// Each step after this product reads U. If both matrices together exceed L2, W evicts a part of U.
// The product with W is compute-bound and can prefetch U again. It does so in its second
// half, when it evicts only its own data: two panels of U per panel of W.
Next CpuLayer::recurrent_part(int64_t done, int64_t count) const {
  const int64_t both = input_.bytes() + recurrent_.bytes(), panels = recurrent_.panels();
  if (panels == 0 || recurrent_.bytes() > kNearBytes || both <= kNearBytes) return {};
  const int64_t begin = std::max<int64_t>(0, 2 * done - panels), end = 2 * (done + count) - panels;
  return end > begin ? recurrent_.place(begin, end) : Next();
}

void CpuLayer::encode_before(const Slice& slice) const {
  for (int64_t i = 0; i < slice.streams; ++i) {
    encode(slice.memory[i], slice.y + i * recurrent_.encoded_bytes());
  }
}

int CpuLayer::not_finite(const float* memory) const {
  for (size_t s = 0; s < states_.size(); ++s) {
    if (!all_finite_(memory + states_[s].at, states_[s].width)) return int(s);
  }
  return -1;
}

}  // namespace tsm
