#include "engine/pool/turns.h"

#include <algorithm>
#include <limits>

namespace tsm {

int64_t longest_piece(const PoolOptions& options, int64_t budget, int64_t feeding) {
  const int64_t width = std::clamp(feeding, int64_t(1), options.max_batch);
  const int64_t least = feeding > options.max_batch ? options.prefill_steps / 2 : 0;
  const int64_t share = std::max(budget / width, least);
  return std::clamp(share, int64_t(1), options.prefill_steps);
}

Line& Turns::join(std::string_view user, int priority) {
  user_.assign(user);
  const auto at = lines_[priority].try_emplace(user_).first;
  Line& line = at->second;
  line.user = at->first;
  line.priority = priority;
  ++line.requests;
  return line;
}

void Turns::leave(Line& line) {
  if (--line.requests > 0) return;
  user_.assign(line.user);  // erasing frees it
  lines_[line.priority].erase(user_);
}

void Turns::add(Request& request) {
  Line& line = *request.line;
  count(request, 1);
  line.waiting.push_back(request);
  if (!Ring::holds(line)) rings_[line.priority].push_back(line);
}

void Turns::add_first(Request& request) {
  Line& line = *request.line;
  count(request, 1);
  line.waiting.push_front(request);
  if (!Ring::holds(line)) rings_[line.priority].push_back(line);
}

void Turns::remove(Request& request) {
  Line& line = *request.line;
  if (!line.waiting.holds(request)) return;
  count(request, -1);
  line.waiting.remove(request);
  if (line.waiting.empty()) rings_[line.priority].remove(line);
}

void Turns::count(const Request& request, int64_t change) {
  waiting_ += change;
  if (request.next_steps(2) > 1) feeding_[request.line->priority] += change;
}

int64_t Turns::next_steps(const PoolOptions& options) const {
  int64_t feeding = 0;
  for (const int64_t count : feeding_) feeding += count;
  const int64_t most = std::min(feeding, options.max_batch) * options.prefill_steps;
  return std::min(most, options.prefill_budget) + std::min(waiting_ - feeding, options.max_batch);
}

void Turns::choose(const PoolOptions& options, int64_t budget, std::vector<Request*>& batch) {
  batch.clear();
  budget_ = budget;
  int64_t feeding = 0;
  for (int priority = kPriorities - 1; priority >= 0; --priority) {
    feeding += feeding_[priority];
    longest_ = longest_piece(options, budget, feeding);
    choose(rings_[priority], options, batch);
  }
}

void Turns::skip_rounds(const Ring& ring) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Line* line = ring.front(); line; line = line->in_turn.after)
    least = std::min(least, line->waiting.front()->next_steps(longest_) - line->credit);
  for (Line* line = ring.front(); line; line = line->in_turn.after) line->credit += least - 1;
}

void Turns::choose(Ring& ring, const PoolOptions& options, std::vector<Request*>& batch) {
  Ring over_budget, later;       // `later` reverses `over_budget`
  const Line* unable = nullptr;  // the first of the lines since the last one that could run
  while (!ring.empty() && int64_t(batch.size()) < options.max_batch) {
    Line& line = *ring.pop_front();
    Request& first = *line.waiting.front();
    const int64_t steps = first.next_steps(longest_);
    if (steps > 1 && steps > budget_) {
      over_budget.push_back(line);
      unable = nullptr;
      continue;
    }
    if (++line.credit < steps) {
      ring.push_back(line);
      if (!unable) unable = &line;
      if (ring.front() == unable) {  // a whole round without a choice
        skip_rounds(ring);
        unable = nullptr;
      }
      continue;
    }
    unable = nullptr;
    line.credit -= steps;
    if (steps > 1) budget_ -= steps;
    first.piece = steps;
    count(first, -1);
    line.waiting.pop_front();
    batch.push_back(&first);
    if (line.waiting.empty())
      line.credit = 0;
    else
      ring.push_back(line);
  }
  // Lines over the budget come first in the next step.
  while (!over_budget.empty()) later.push_front(*over_budget.pop_front());
  while (!later.empty()) ring.push_front(*later.pop_front());
}

}  // namespace tsm
