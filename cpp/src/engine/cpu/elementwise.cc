#include "engine/cpu/elementwise.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tsm {
namespace {

// The compiled cell that computes the program; null if there is none.
const CellForward<float>* compiled(const Isa& isa, const LayerConfig& config) {
  for (int i = 0; i < isa.cell_count; ++i)
    if (config.runs_as(isa.cells[i])) return &isa.cells[i];
  return nullptr;
}

}  // namespace

ElementwiseLayer::ElementwiseLayer(const ModelFile& file, int64_t number, const Isa& isa,
                                   Weights weights, int64_t offset)
    : CpuLayer(file, number, isa, weights, offset) {
  const LayerConfig& config = file.config().layers[size_t(number)];
  cell_ = compiled(isa, config);
  interpret_ = isa.interpret;
  program_ = config.program;
  constants_ = config.constants;
  const auto count = int64_t(config.names.vectors.size());
  Aligned<float> vectors(count * H_);
  for (int64_t k = 0; k < count; ++k) {
    const std::string name = "layers." + std::to_string(number) + ".vectors.";
    const float* values = file.vector(name + config.names.vectors[size_t(k)], H_);
    std::memcpy(vectors.data() + k * H_, values, size_t(H_) * 4);
  }
  if (!cell_) {
    prepared_ = std::move(vectors);
    return;
  }
  prepared_ = Aligned<float>(cell_->prepared * H_);
  cell_->prepare(H_, vectors.data(), constants_.data(), prepared_.data());
}

void ElementwiseLayer::step(float* memory, const float* z, float dt) const {
  float* states[kMostNames];
  for (size_t s = 0; s < states_.size(); ++s) states[s] = memory + states_[s].at;
  const CellStep<float> one{H_, z, states, prepared_.data(), constants_.data(), dt};
  if (cell_) {
    cell_->forward(one);
  } else {
    interpret_(program_->view(), one);
  }
}

int ElementwiseLayer::run(const Slice& slice, ThreadPool& pool, CpuWorkspace& workspace) const {
  float* z = workspace.z.data();
  encode_before(slice);
  // A single step reads W and U together; for several steps W is read once for all of them.
  const bool single = slice.steps == 1 && slice.x;
  if (!single) project(slice, pool, workspace);
  const int recurrent = recurrent_.outputs() > 0 ? 1 : 0;
  std::atomic<int> bad{-1};
  for (int64_t t = 0; t < slice.steps; ++t) {
    const int64_t active = slice.active[t], first = slice.first[t];
    const Term terms[] = {{&input_, slice.x}, {&recurrent_, before(slice, t)}};
    multiply_sweep(pool, single ? terms : terms + 1, (single ? 1 : 0) + recurrent, active,
                   {z + first * stride_, stride_, single ? bias_.data() : nullptr},
                   (workspace.steps + t) % 2 != 0);
    const int64_t work = active * width_ * kWorkOfElement;
    split(pool, active, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float* memory = slice.memory[i];
        step(memory, z + (first + i) * stride_, slice.dt[first + i]);
        encode(memory, slice.y + slice.output(t, i) * encoded_bytes());
        // In a compiled cell a non-finite value persists to the end; an interpreted program may
        // discard it.
        if (!cell_) {
          const int state = not_finite(memory);
          if (state >= 0) bad.store(state, std::memory_order_relaxed);
        }
      }
    });
  }
  for (int64_t i = 0; cell_ && i < slice.streams; ++i) {
    const int state = not_finite(slice.memory[i]);
    if (state >= 0) bad.store(state, std::memory_order_relaxed);
  }
  return bad.load();
}

}  // namespace tsm
