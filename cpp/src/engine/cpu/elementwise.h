// A layer of an element-wise cell, which is compiled in or interpreted from its program.
#pragma once
#include "engine/cpu/layer.h"

namespace tsm {

class ElementwiseLayer : public CpuLayer {
 public:
  ElementwiseLayer(const ModelFile& file, int64_t number, const Isa& isa, Weights weights,
                   int64_t offset);

  bool interpreted() const override { return cell_ == nullptr; }
  int run(const Slice& slice, ThreadPool& pool, CpuWorkspace& workspace) const override;

 private:
  void step(float* memory, const float* z, float dt) const;

  const CellForward<float>* cell_;  // null: `program_` is interpreted
  void (*interpret_)(const Program& program, const CellStep<float>& step);
  std::shared_ptr<const CellProgram> program_;
  std::vector<float> constants_;
  Aligned<float> prepared_;
};

}  // namespace tsm
