// What the files of the planner share: plan.cc tries plans, plan_fit.cc says which fit, and
// plan_estimate.cc how long they take.
#pragma once
#include "kernels/cuda/train/teams/plan.h"

namespace tsm::team {

inline int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
inline int64_t round_up(int64_t n, int64_t to) { return divided_up(n, to) * to; }

constexpr int kMaxStages = 32;  // one per lane of a producer

// Bytes of a matrix that stay in the L2 cache of an H200 from one step to the next: of one of up to
// kCached all; of a larger one kKept, if the others are read with evict_first.
constexpr double kCached = 45e6, kKept = 38e6;

// Derives the rest of the plan from form, members, units, rows, splits, bulk, producers, marked,
// group, pieces and cut; returns false if it does not fit.
bool complete(Plan& p, const Device& device, const LayerShape& layer);

// The same for a matrix that is streamed, from form, members, units, rows, splits, producers,
// group, stages and slots. All jobs have the same number of pieces: chunks are a multiple of
// splits.
bool complete_streamed(Plan& p, const Device& device, const LayerShape& layer);

// The same for a matrix in registers, from form and units; returns false if it is too large.
bool complete_registers(Plan& p, const Device& device, const LayerShape& layer);

// The tiles of a warp that a kRegisters plan keeps in shared memory.
int shared_tiles(const Plan& p, const LayerShape& layer);

}  // namespace tsm::team
