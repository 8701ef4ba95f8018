#include "engine/cpu/head.h"

#include <algorithm>
#include <cstring>

namespace tsm {
namespace {

constexpr int64_t kFloatsAtOnce = 1 << 20, kRowsAtLeast = 16;

// Whether the rows are consecutive in y.
bool in_order(const Wanted* wanted, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    if (wanted[i].row != wanted[0].row + i) return false;
  }
  return true;
}

// Whether the logits go to consecutive rows.
bool one_block(const Wanted* wanted, int64_t count, int64_t width) {
  for (int64_t i = 0; i < count; ++i) {
    if (wanted[i].token >= 0) return false;
    if (i > 0 && wanted[i].out != wanted[i - 1].out + width) return false;
  }
  return true;
}

}  // namespace

CpuHead::CpuHead(const ModelFile& file, const Isa& isa, Weights weights)
    : log_sum_exp_(isa.log_sum_exp) {
  const Config& config = file.config();
  const char* name = config.tied ? "embedding" : "output.weight";
  weight_ = Matrix(isa.matrix[int(weights)],
                   file.matrix(name, config.output_size, config.layers.back().hidden_size));
  bias_ = Aligned<float>(config.output_size);
  std::memcpy(bias_.data(), file.vector("output.bias", config.output_size),
              size_t(config.output_size) * 4);
}

int64_t CpuHead::block() const { return std::max(kRowsAtLeast, kFloatsAtOnce / outputs()); }

void CpuHead::reserve(CpuWorkspace& workspace, int64_t wanted, bool staged) const {
  const int64_t rows = std::min(wanted, block());
  workspace.gathered.reserve(rows * weight_.encoded_bytes());
  if (staged) workspace.logits.reserve(rows * outputs());
}

void CpuHead::run(const uint8_t* y, const Wanted* wanted, int64_t count, ThreadPool& pool,
                  CpuWorkspace& workspace) const {
  const int64_t width = outputs(), bytes = weight_.encoded_bytes();
  for (; count > 0; wanted += block(), count -= block()) {
    const int64_t rows = std::min(count, block());
    const uint8_t* x = y + wanted[0].row * bytes;
    if (!in_order(wanted, rows)) {
      for (int64_t i = 0; i < rows; ++i) {
        std::memcpy(workspace.gathered.data() + i * bytes, y + wanted[i].row * bytes,
                    size_t(bytes));
      }
      x = workspace.gathered.data();
    }
    const bool direct = one_block(wanted, rows, width);
    float* out = direct ? wanted[0].out : workspace.logits.data();
    weight_.multiply(pool, rows, x, {out, width, bias_.data()});
    if (direct) continue;
    split(pool, rows, rows * width * kWorkOfElement, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* logits = out + i * width;
        if (wanted[i].token < 0) {
          std::memcpy(wanted[i].out, logits, size_t(width) * 4);
        } else {
          *wanted[i].out = logits[wanted[i].token] - log_sum_exp_(logits, width);
        }
      }
    });
  }
}

}  // namespace tsm
