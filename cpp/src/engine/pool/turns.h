// Decides whose turn it is: every step of the scheduler takes requests from the users in turn. The
// caller holds the pool's lock.
//
// Deficit round robin: in each round a user gets credit for one step, and its first request runs
// once the credit covers it. So users get equal shares of the steps, however long and however many
// their requests are. A user's own requests take turns, piece by piece. Requests of a higher
// priority go first.
//
// The more requests with several steps wait, the shorter their pieces, so that all of them fit into
// one step of the scheduler and share each read of a model larger than the caches. If more wait
// than fit, pieces are longer again: otherwise all requests would begin before the first one ends.
// A begun request with at most half of prefill_steps left goes before the user's others.
#pragma once
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/pool/request.h"

namespace tsm {

// The maximum number of steps in a piece while `feeding` requests, of this priority or higher, have
// several steps to go, and a step of the scheduler may have `budget` of such steps.
int64_t longest_piece(const PoolOptions& options, int64_t budget, int64_t feeding);

class Turns {
 public:
  // Returns the user's line for one more request. The line exists until every request has left it.
  Line& join(std::string_view user, int priority);
  void leave(Line& line);

  void add(Request& request);        // it can run; goes after the user's others
  void add_first(Request& request);  // the same, but before them
  void remove(Request& request);     // if it is in a line
  bool any() const { return waiting_ > 0; }
  // Estimates how many stream steps the next step of the scheduler has; rather too high than too
  // low.
  int64_t next_steps(const PoolOptions& options) const;

  // Chooses the requests of the next step and removes them from their lines.
  void choose(const PoolOptions& options, int64_t budget, std::vector<Request*>& batch);

 private:
  using Ring = Linked<Line, &Line::in_turn>;
  void choose(Ring& ring, const PoolOptions& options, std::vector<Request*>& batch);
  void count(const Request& request, int64_t change);
  void skip_rounds(const Ring& ring);  // those in which no line has enough credit

  std::unordered_map<std::string, Line> lines_[kPriorities];
  Ring rings_[kPriorities];            // lines with a request that can run
  std::string user_;                   // for look-ups without allocation
  int64_t waiting_ = 0;                // requests in all lines
  int64_t feeding_[kPriorities] = {};  // those with several steps to go
  int64_t budget_ = 0, longest_ = 0;   // of the step that is being chosen
};

}  // namespace tsm
