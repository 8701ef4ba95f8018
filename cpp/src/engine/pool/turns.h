// Whose turn it is: every step of the scheduler takes requests of the users in turn. The pool holds
// its lock.
//
// Deficit round robin: in each round a user gets credit for one step, and its first request runs
// once the credit covers it. So users have equal shares of the steps, whatever they ask for and
// however many requests they queue. A user's own requests take turns, piece by piece. Requests of a
// higher priority go first.
#pragma once
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/pool/request.h"

namespace tsm {

class Turns {
 public:
  // The user's line, for one more request; it is there until each was left.
  Line& join(std::string_view user, int priority);
  void leave(Line& line);

  void add(Request& request);     // it can run, after the user's others
  void remove(Request& request);  // where it is in a line
  bool any() const;

  // The requests of the next step, which are then in no line.
  void choose(const PoolOptions& options, std::vector<Request*>& batch);

 private:
  using Ring = Linked<Line, &Line::in_turn>;
  void choose(Ring& ring, const PoolOptions& options, std::vector<Request*>& batch);

  std::unordered_map<std::string, Line> lines_[kPriorities];
  Ring rings_[kPriorities];  // those with a request that can run
  std::string user_;         // to look up without allocating
  int64_t budget_ = 0;
};

}  // namespace tsm
