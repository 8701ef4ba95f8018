// Drawing a token from logits.
#pragma once
#include <cstdint>

#include "engine/model.h"

namespace tsm {

void check(const Sampling& sampling);  // tsm::Error names the field

// A number in [0, 1) for a step of a stream. It is a hash of seed and position (two rounds of the
// splitmix64 finaliser), so it does not depend on earlier draws.
double uniform(uint64_t seed, int64_t position);

// The token that `uniform` picks; -1 if a logit is not finite. weights and heap [count] are scratch
// memory.
int64_t draw(const float* logits, int64_t count, const Sampling& sampling, double uniform,
             double* weights, int64_t* heap);

}  // namespace tsm
