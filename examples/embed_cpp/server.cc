// The loop of a server: one stream per user, all users computed together.
//
//   server model.tsm 2 < requests.txt
//
// A request is a line `USER TOKEN TOKEN ...`. The answer `USER POSITION TOKEN` gives how many
// tokens the user has sent so far and which one the model expects next; a bad request is answered
// at once by `USER error: ...` and changes nothing. Answers to one user come in order, answers to
// different users as they are ready. stdin and stdout take the place of sockets.
//
// A tsm::StreamPool does the work: it keeps the streams, and feeds all waiting requests in one
// call. One thread reads and submits requests, another takes the answers. If requests come faster
// than they are served, they are read more slowly: the pool's queue is bounded.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tsm/pool.hpp>
#include <unordered_map>
#include <vector>

namespace {

struct Request {
  std::string user;
  std::vector<std::int64_t> tokens;
};

// Submits one line; false if it names no user. A word that is not a token is refused, and nothing
// is fed.
bool parse(const std::string& line, Request& request) {
  std::istringstream words(line);
  if (!(words >> request.user)) return false;
  for (std::string word; words >> word;) {
    const char* const end = word.data() + word.size();
    std::int64_t token = 0;
    const auto [stop, error] = std::from_chars(word.data(), end, token);
    if (error != std::errc() || stop != end)
      throw std::invalid_argument("token '" + word + "'; accepted: an integer");
    request.tokens.push_back(token);
  }
  return true;
}

class Server {
 public:
  explicit Server(const tsm::Model& model) : pool_(model, options()), taker_([this] { take(); }) {}
  ~Server() {
    pool_.close();  // when everything is answered
    taker_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void ask(const std::string& line) {
    Request request;
    try {
      if (!parse(line, request)) return;
      pool_.wait_room();
      tsm::Terms terms;
      terms.user = request.user;
      const std::lock_guard lock(mutex_);  // the answer may come before the ticket is recorded
      const auto ticket = pool_.feed(request.user, request.tokens, {tsm::Logits::kLast}, terms);
      users_[ticket] = request.user;
    } catch (const std::exception& error) {
      print(request.user, "error: ", error.what());
    }
  }

 private:
  static tsm::PoolOptions options() {
    tsm::PoolOptions options;
    options.max_queue = 1024;
    return options;
  }
  void take() {
    for (;;) {
      const tsm::PoolEvents events = pool_.take();
      if (events.empty()) return;  // the pool is closed
      for (const tsm::PoolEvent& event : events) answer(event);
    }
  }
  void answer(const tsm::PoolEvent& event) {
    std::unique_lock lock(mutex_);
    const auto user = users_.extract(event.ticket);
    lock.unlock();
    if (event.status != TSM_OK) {
      print(user.mapped(), "error: ", std::string(event.message).c_str());
      return;
    }
    const float* const row = event.logits.data();
    const auto best = std::max_element(row, row + event.logits.size()) - row;
    print(user.mapped(), (std::to_string(event.position) + " " + std::to_string(best)).c_str());
  }
  void print(const std::string& user, const char* text, const char* more = "") {
    const std::lock_guard lock(printing_);
    std::printf("%s %s%s\n", user.c_str(), text, more);
    std::fflush(stdout);
  }

  std::mutex mutex_, printing_;
  std::unordered_map<std::uint64_t, std::string> users_;  // of requests by ticket
  tsm::StreamPool pool_;
  std::thread taker_;
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  if (argc < 2 || argc > 3 || threads < 1) {
    std::fprintf(stderr, "usage: server MODEL [THREADS] < REQUESTS\n");
    return 2;
  }
  try {
    const tsm::Model model = tsm::Model::load(argv[1], {TSM_FLOAT32, threads});
    Server server(model);
    for (std::string line; std::getline(std::cin, line);) server.ask(line);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "server: %s\n", error.what());
    return 1;
  }
}
