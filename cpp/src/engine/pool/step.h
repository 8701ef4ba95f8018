// One step of the chosen requests: draws tokens, and feeds all streams in one call.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/pool/request.h"

namespace tsm {

class Step {
 public:
  Step(const Model& model, const PoolOptions& options);
  // Afterwards each request has advanced by one piece, finished or failed. The stream of a failed
  // request is restored; with Request::keeps_place it keeps the tokens fed so far instead.
  // Never throws.
  void run(const std::vector<Request*>& batch) noexcept;
  // Ends a request that finished or failed: restores its stream if needed, and fills in the event's
  // position and state.
  static void end(Request& request) noexcept;
  // The number of steps fed and of tokens drawn by the last run.
  int64_t fed() const { return fed_; }
  int64_t generated() const { return generated_; }

 private:
  void draw(const std::vector<Request*>& batch);
  Chunk next_chunk(Request& request) const;
  void feed();
  void advance(Request& request, const Chunk& chunk);

  const Model& model_;
  std::vector<Request*> drawing_, feeding_;
  std::vector<Draw> draws_;
  std::vector<Chunk> chunks_;
  std::vector<Failure> failures_;
  int64_t fed_ = 0, generated_ = 0;
};

}  // namespace tsm
