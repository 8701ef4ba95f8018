// The loop of a server: one stream a user, requests shared out to worker threads.
//
//   server model.tsm 4 < requests.txt
//
// A request is a line `USER TOKEN TOKEN ...`. The answer `USER POSITION TOKEN` gives how many
// tokens the user has sent so far and which one the model expects next; a bad request is answered
// by `USER error: ...` and changes nothing. Answers of one user come in order; those of different
// users as they are done. stdin and stdout stand where sockets would be.
//
// A user belongs to one worker, so no stream is ever used by two threads and none needs a lock. A
// worker takes all requests that are waiting and feeds them in one call: the weights are read once
// for all of them, and the results are the same as one by one.
#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <tsm/tsm.hpp>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace {

struct Request {
  std::string user;
  std::vector<std::int64_t> tokens;
  std::string unreadable;  // the first word that is no token
};

// One line; false if nobody is named.
bool parse(const std::string& line, Request& request) {
  std::istringstream words(line);
  if (!(words >> request.user)) return false;
  for (std::string word; request.unreadable.empty() && words >> word;) {
    const char* const end = word.data() + word.size();
    std::int64_t token = 0;
    const auto [stop, error] = std::from_chars(word.data(), end, token);
    if (error == std::errc() && stop == end)
      request.tokens.push_back(token);
    else
      request.unreadable = word;
  }
  return true;
}

// What waits for one worker.
class Queue {
 public:
  void put(Request request) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(request));
    changed_.notify_one();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }
  // The first request of every waiting user, in order; none when the queue is closed and empty.
  std::vector<Request> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
    std::vector<Request> batch, later;
    std::unordered_set<std::string> users;
    for (Request& request : waiting_)
      (users.insert(request.user).second ? batch : later).push_back(std::move(request));
    waiting_ = std::move(later);
    return batch;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Request> waiting_;
  bool closed_ = false;
};

std::mutex printing;

void answer(const std::string& user, const std::string& text) {
  const std::lock_guard lock(printing);
  std::printf("%s %s\n", user.c_str(), text.c_str());
  std::fflush(stdout);
}

class Worker {
 public:
  explicit Worker(const tsm::Model& model) : model_(model) {}
  void put(Request request) { queue_.put(std::move(request)); }
  void close() { queue_.close(); }

  void run() {
    for (auto batch = queue_.take(); !batch.empty(); batch = queue_.take()) serve(batch);
  }

 private:
  // A bad request is refused by itself: its stream is as it was, the others are fed.
  void serve(const std::vector<Request>& requests) {
    const std::size_t V = std::size_t(model_.output_size());
    logits_.resize(std::max(logits_.size(), requests.size() * V));
    chunks_.clear();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      tsm::Chunk chunk;
      chunk.stream = &stream_of(requests[i].user);
      if (requests[i].unreadable.empty()) {
        chunk.tokens = requests[i].tokens;
        chunk.logits = {&logits_[i * V], V};
        chunk.outputs = tsm::Outputs::kLastStep;
      }
      chunks_.push_back(chunk);
    }
    std::vector<std::string> errors(requests.size());
    for (const tsm::Failure& failure : model_.try_feed_many(chunks_))
      errors[failure.chunk] = failure.message;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!requests[i].unreadable.empty())
        errors[i] = "token '" + requests[i].unreadable + "'; accepted: an integer";
      if (!errors[i].empty()) {
        answer(requests[i].user, "error: " + errors[i]);
        continue;
      }
      const float* row = &logits_[i * V];
      const auto best = std::max_element(row, row + V) - row;
      answer(requests[i].user,
             std::to_string(chunks_[i].stream->position()) + " " + std::to_string(best));
    }
  }

  tsm::Stream& stream_of(const std::string& user) {
    const auto found = streams_.find(user);
    if (found != streams_.end()) return found->second;
    return streams_.emplace(user, model_.create_stream()).first->second;
  }

  const tsm::Model& model_;
  Queue queue_;
  std::unordered_map<std::string, tsm::Stream> streams_;
  std::vector<tsm::Chunk> chunks_;
  std::vector<float> logits_;
};

int serve_stdin(const char* path, std::size_t count) {
  const tsm::Model model = tsm::Model::load(path);
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    workers.push_back(std::make_unique<Worker>(model));
    threads.emplace_back(&Worker::run, workers.back().get());
  }
  for (std::string line; std::getline(std::cin, line);) {
    Request request;
    if (!parse(line, request)) continue;
    const std::size_t worker = std::hash<std::string>()(request.user) % count;
    workers[worker]->put(std::move(request));
  }
  for (auto& worker : workers) worker->close();
  for (auto& thread : threads) thread.join();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int workers = argc > 2 ? std::atoi(argv[2]) : 2;
  if (argc < 2 || argc > 3 || workers < 1) {
    std::fprintf(stderr, "usage: server MODEL [WORKERS] < REQUESTS\n");
    return 2;
  }
  try {
    return serve_stdin(argv[1], std::size_t(workers));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "server: %s\n", error.what());
    return 1;
  }
}
