// The output: logits = W h + b for the requested rows, and log-probabilities of tokens.
#pragma once
#include <cstdint>

#include "core/thread_pool.h"
#include "engine/cpu/matrix.h"
#include "engine/cpu/workspace.h"
#include "engine/file/config.h"

namespace tsm {

class CpuHead {
 public:
  CpuHead(const ModelFile& file, const Isa& isa, Weights weights);

  int64_t outputs() const { return weight_.outputs(); }
  int64_t weight_bytes() const { return weight_.bytes() + bias_.size() * 4; }

  // `staged`: outputs may be anywhere; otherwise they are one row or consecutive rows.
  void reserve(CpuWorkspace& workspace, int64_t wanted, bool staged) const;
  // y: encoded rows.
  void run(const uint8_t* y, const Wanted* wanted, int64_t count, ThreadPool& pool,
           CpuWorkspace& workspace) const;

 private:
  int64_t block() const;  // rows processed at a time

  Matrix weight_;
  Aligned<float> bias_;
  float (*log_sum_exp_)(const float* x, int64_t n);
};

}  // namespace tsm
