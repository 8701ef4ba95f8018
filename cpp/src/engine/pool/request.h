// A request on its way through the pool, and the stream and the user it belongs to.
#pragma once
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "core/linked.h"
#include "engine/pool/asked.h"
#include "engine/stream.h"

namespace tsm {

struct StreamEntry;
struct Line;

struct Request {
  // What was asked. tokens, values and dt are copies.
  bool generates = false, progress = false;
  std::vector<int64_t> tokens;  // to feed, or those that end a generation
  std::vector<float> values, dt;
  int64_t steps = 0;  // to feed, or at most to draw
  Sampling sampling;
  bool has_dt = false;
  int64_t deadline = 0;            // nanoseconds; 0: none
  int64_t expected_position = -1;  // -1: any

  // How far it is. While `running`, the scheduler's alone but for `asked_to_end`.
  int64_t done = 0;
  bool started = false, running = false, served = false, stopped = false, finished = false;
  ErrorKind asked_to_end{};  // 0: not
  bool has_row = false;      // `row` are the logits of the state as it is: a token can be drawn
  std::vector<float> row;    // [V], of a generation
  int64_t drawn = 0;         // the token that is being fed,
  bool has_drawn = false;    // and was: event->tokens lacks it until the pool has its lock
  int64_t told = 0;          // how many of event->tokens were told
  int64_t position = 0;      // of the stream after its last step, for what is told on the way
  std::unique_ptr<Stream> before;  // the stream as it was, where it may have to go back
  bool goes_back = false;          // `before` is used: others keep one for the next request
  bool was_clean = false;
  std::unique_ptr<PoolEvent> event;

  uint64_t ticket = 0;
  StreamEntry* entry = nullptr;
  Line* line = nullptr;
  Link<Request> in_entry, in_line, in_events;

  // As new, but for memory that the next one may use.
  void clear();

  bool is_over() const { return stopped || (done == steps && (served || generates)); }
  bool failed() const { return event->error != ErrorKind(); }
  // Whether the stream stays where it is when the request ends early.
  bool keeps_place() const { return generates && progress; }
  // Steps of its next piece; what has no steps takes a place all the same.
  int64_t next_steps(int64_t most) const {
    if (generates) return 1;
    const int64_t left = steps - done;
    return left < 1 ? 1 : left < most ? left : most;
  }
  void fail(ErrorKind kind, const char* why) noexcept {
    event->error = kind;
    try {
      event->message = why;
    } catch (const std::bad_alloc&) {  // the kind alone says it
      event->message.clear();
    }
  }
};

// A stream that is kept under a key.
struct StreamEntry {
  std::string_view key;
  std::unique_ptr<Stream> stream;
  int64_t position = 0;                          // of the stream between requests
  bool clean = false;                            // somebody else has the state as well
  bool spilling = false;                         // on its way out: nobody may use it
  uint64_t last_used = 0;                        // a count, of when it became idle
  Linked<Request, &Request::in_entry> requests;  // the first one runs, the others wait for it
  Link<StreamEntry> in_idle;

  bool busy() const { return !requests.empty(); }
};

// The requests of a user at one priority.
struct Line {
  std::string_view user;
  int priority = 0;
  int64_t requests = 0;                        // that are not finished
  int64_t credit = 0;                          // steps that it may take
  Linked<Request, &Request::in_line> waiting;  // those that can run
  Link<Line> in_turn;
};

}  // namespace tsm
