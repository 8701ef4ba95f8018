// A request in the pool, with its stream and its user.
#pragma once
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include "core/linked.h"
#include "engine/pool/asked.h"
#include "engine/stream.h"

namespace tsm {

struct StreamEntry;
struct Line;

struct Request {
  // The arguments. tokens, values and dt are copies.
  bool generates = false, progress = false;
  std::vector<int64_t> tokens;  // to feed, or the stop tokens of a generation
  std::vector<float> values, dt;
  int64_t steps = 0;  // to feed, or the maximum to draw
  Sampling sampling;
  bool has_dt = false;
  int64_t deadline = 0;            // nanoseconds; 0: none
  int64_t expected_position = -1;  // -1: any

  int64_t piece = 1;  // steps of its next piece, as Turns has decided

  // The progress. While `running`, only the scheduler may access it, except for `asked_to_end`.
  int64_t done = 0;
  bool started = false, running = false, served = false, stopped = false, finished = false;
  ErrorKind asked_to_end{};  // 0: no
  bool has_row = false;      // `row` holds the logits of the current state: a token can be drawn
  std::vector<float> row;    // [V], of a generation
  int64_t drawn = 0;         // the token being fed
  bool has_drawn = false;    // it was fed, but is not yet in event->tokens (needs the lock)
  int64_t told = 0;          // how many of event->tokens were reported
  int64_t position = 0;      // of the stream after its last step, for progress events
  std::unique_ptr<Stream> before;  // a copy of the stream, if it may have to be restored
  bool goes_back = false;          // `before` is in use; otherwise it is kept for a later request
  bool was_clean = false;
  std::unique_ptr<PoolEvent> event;

  uint64_t ticket = 0;
  StreamEntry* entry = nullptr;
  Line* line = nullptr;
  Link<Request> in_entry, in_line, in_events;

  // Resets everything, but keeps memory that the next request can use.
  void clear();

  bool is_over() const { return stopped || (done == steps && (served || generates)); }
  bool failed() const { return event->error != ErrorKind(); }
  // Whether the stream keeps its position if the request ends early.
  bool keeps_place() const { return generates && progress; }
  // Steps of its next piece. A request without steps counts as one step.
  int64_t next_steps(int64_t most) const {
    if (generates) return 1;
    const int64_t left = steps - done;
    return left < 1 ? 1 : left < most ? left : most;
  }
  void fail(ErrorKind kind, const char* why) noexcept {
    event->error = kind;
    try {
      event->message = why;
    } catch (const std::bad_alloc&) {  // the error kind has to suffice
      event->message.clear();
    }
  }
};

// A stream kept under a key.
struct StreamEntry {
  std::string_view key;
  std::unique_ptr<Stream> stream;
  int64_t position = 0;                          // of the stream between requests
  bool clean = false;                            // the state is stored elsewhere as well
  std::thread::id spilled_by;                    // while it is being removed: nothing may use it
  uint64_t last_used = 0;                        // a counter value: when it became idle
  Linked<Request, &Request::in_entry> requests;  // the first one runs, the others wait
  Link<StreamEntry> in_idle;

  bool busy() const { return !requests.empty(); }
  bool spilling() const { return spilled_by != std::thread::id(); }
};

// The requests of a user at one priority.
struct Line {
  std::string_view user;
  int priority = 0;
  int64_t requests = 0;                        // unfinished ones
  int64_t credit = 0;                          // steps it may use
  Linked<Request, &Request::in_line> waiting;  // those that can run
  Link<Line> in_turn;
};

}  // namespace tsm
