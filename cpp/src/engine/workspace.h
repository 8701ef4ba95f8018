// Scratch memory of a call, on any device. A model keeps one per concurrent call.
#pragma once
#include <cstdint>
#include <vector>

#include "core/growing.h"
#include "engine/device/device.h"
#include "engine/overlap.h"

namespace tsm {

// A stream before a call that generates.
struct Started {
  int64_t backup = -1;  // index of its states in Workspace::backup; -1: the stream is not held
  int64_t position = 0;
  double time = 0;
};

struct Workspace {
  Growing<int64_t> order;
  std::vector<NotFinite> broken;
  Growing<Slot*> slots;
  Growing<OutputSpan> spans;
  // For sampling, and for a call that generates (engine/generate.h).
  Growing<double> weights;
  Growing<int64_t> candidates, drawn, active;
  Growing<float> backup, logits;
  std::vector<Chunk> chunks;
  std::vector<Started> started;
};

}  // namespace tsm
