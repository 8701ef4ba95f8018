// What a call keeps in memory, whatever the device. A model keeps as many as calls ever ran at
// once.
#pragma once
#include <cstdint>
#include <vector>

#include "core/growing.h"
#include "engine/device/device.h"
#include "engine/overlap.h"

namespace tsm {

// Where a stream stood before a call that generates.
struct Started {
  bool held = false;
  int64_t position = 0;
  double time = 0;
};

struct Workspace {
  Growing<int64_t> order;
  std::vector<NotFinite> broken;
  Growing<Slot*> slots;
  Growing<OutputSpan> spans;
  // Of sampling, and of a call that generates (engine/generate.h).
  Growing<double> weights;
  Growing<int64_t> candidates, drawn, active;
  Growing<float> backup, logits;
  std::vector<Chunk> chunks;
  std::vector<Started> started;
};

}  // namespace tsm
