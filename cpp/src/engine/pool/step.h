// One step of the requests that were chosen: tokens are drawn, and all streams are fed in one call.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/pool/request.h"

namespace tsm {

class Step {
 public:
  Step(const Model& model, const PoolOptions& options);
  // Each request is one piece further, is over, or has failed: its stream is then as it was, or
  // where Request::keeps_place says so, after the tokens that it has. Nothing is thrown.
  void run(const std::vector<Request*>& batch) noexcept;
  // What a request that is over or has failed leaves: the stream, its position, the state.
  static void end(Request& request) noexcept;
  // How many steps were fed and tokens drawn by the last run.
  int64_t fed() const { return fed_; }
  int64_t generated() const { return generated_; }

 private:
  void draw(const std::vector<Request*>& batch);
  Chunk next_chunk(Request& request) const;
  void feed();
  void advance(Request& request, const Chunk& chunk);

  const Model& model_;
  const int64_t prefill_steps_;
  std::vector<Request*> drawing_, feeding_;
  std::vector<Draw> draws_;
  std::vector<Chunk> chunks_;
  std::vector<Failure> failures_;
  int64_t fed_ = 0, generated_ = 0;
};

}  // namespace tsm
