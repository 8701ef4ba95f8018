// The non-saturating recurrent unit, written by hand. plugin/cells/nru.py has the formulas and says
// why.
#pragma once
#include "engine/cpu/layer.h"

namespace tsm {

class NruLayer : public CpuLayer {
 public:
  NruLayer(const ModelFile& file, int64_t number, const Isa& isa, Weights weights, int64_t offset);

  int64_t weight_bytes() const override;
  void reserve(CpuWorkspace& workspace, int64_t streams, int64_t rows) const override;
  int run(const Slice& slice, ThreadPool& pool, CpuWorkspace& workspace) const override;

 private:
  // The linear maps of [h, m'], in the order in which their outputs follow each other in a row.
  enum Map { kAlpha, kBeta, kWrite, kErase, kMaps };

  void hidden(float* z) const;  // z -> h
  void remember(const float* maps, float* m) const;

  int64_t M_, heads_, side_;
  Matrix memory_, maps_[kMaps];
  Aligned<float> bias_maps_[kMaps], norm_scale_, norm_shift_;
  int64_t map_at_[kMaps], maps_stride_;
};

}  // namespace tsm
