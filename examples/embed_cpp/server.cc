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
// for all of them, and the results are the same as one by one. Who sends faster than it is served
// is read more slowly: a queue holds so many requests and no more.
#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tsm/tsm.hpp>
#include <unordered_map>
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

// What waits for one worker: so many requests at most, who puts one more waits, too. A request
// costs the same however many wait.
class Queue {
 public:
  void put(Request request) {
    std::unique_lock lock(mutex_);
    taken_.wait(lock, [&] { return count_ < kMostWaiting; });
    std::deque<Request>& line = lines_[request.user];
    if (line.empty()) ready_.push_back(request.user);
    line.push_back(std::move(request));
    ++count_;
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
    changed_.wait(lock, [&] { return closed_ || count_ > 0; });
    std::vector<Request> batch;
    std::vector<std::string> later;
    for (std::string& user : ready_) {
      const auto line = lines_.find(user);
      batch.push_back(std::move(line->second.front()));
      line->second.pop_front();
      if (line->second.empty())
        lines_.erase(line);
      else
        later.push_back(std::move(user));
    }
    ready_ = std::move(later);
    count_ -= batch.size();
    taken_.notify_one();
    return batch;
  }

 private:
  static constexpr std::size_t kMostWaiting = 1024;

  std::mutex mutex_;
  std::condition_variable changed_, taken_;
  std::unordered_map<std::string, std::deque<Request>> lines_;  // of each user, none empty
  std::vector<std::string> ready_;                              // their users
  std::size_t count_ = 0;                                       // of all requests
  bool closed_ = false;
};

std::mutex printing;

void answer(const std::string& user, const char* text, const char* more = "") {
  const std::lock_guard lock(printing);
  std::printf("%s %s%s\n", user.c_str(), text, more);
  std::fflush(stdout);
}

class Worker {
 public:
  explicit Worker(const tsm::Model& model) : model_(model) {}
  void put(Request request) { queue_.put(std::move(request)); }
  void close() { queue_.close(); }

  void run() {
    for (auto batch = queue_.take(); !batch.empty(); batch = queue_.take()) {
      std::size_t answered = 0;
      try {
        serve(batch, answered);
      } catch (const std::exception& error) {  // no memory for them
        for (; answered < batch.size(); ++answered)
          answer(batch[answered].user, "error: ", error.what());
      }
    }
  }

 private:
  // A bad request is refused by itself: its stream is as it was, the others are fed.
  void serve(const std::vector<Request>& requests, std::size_t& answered) {
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
    for (std::size_t& i = answered; i < requests.size(); ++i) {
      if (!requests[i].unreadable.empty())
        errors[i] = "token '" + requests[i].unreadable + "'; accepted: an integer";
      if (!errors[i].empty()) {
        answer(requests[i].user, "error: ", errors[i].c_str());
        continue;
      }
      const float* row = &logits_[i * V];
      const auto best = std::max_element(row, row + V) - row;
      const std::string found =
          std::to_string(chunks_[i].stream->position()) + " " + std::to_string(best);
      answer(requests[i].user, found.c_str());
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

// So many workers, each on a thread of its own until its queue is closed and empty.
class Workers {
 public:
  Workers(const tsm::Model& model, std::size_t count) {
    try {
      for (std::size_t i = 0; i < count; ++i) {
        workers_.push_back(std::make_unique<Worker>(model));
        threads_.emplace_back(&Worker::run, workers_.back().get());
      }
    } catch (const std::exception& error) {
      const std::size_t started = threads_.size();
      finish();
      throw std::runtime_error("WORKERS = " + std::to_string(count) + "; accepted: at most the " +
                               std::to_string(started) + " threads that the system gave (" +
                               error.what() + ")");
    }
  }
  ~Workers() { finish(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void put(Request request) {
    const std::size_t worker = std::hash<std::string>()(request.user) % workers_.size();
    workers_[worker]->put(std::move(request));
  }

 private:
  void finish() {
    for (auto& worker : workers_) worker->close();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
};

void serve_stdin(const char* path, std::size_t count) {
  const tsm::Model model = tsm::Model::load(path);
  Workers workers(model, count);
  for (std::string line; std::getline(std::cin, line);) {
    Request request;
    if (parse(line, request)) workers.put(std::move(request));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int workers = argc > 2 ? std::atoi(argv[2]) : 2;
  if (argc < 2 || argc > 3 || workers < 1) {
    std::fprintf(stderr, "usage: server MODEL [WORKERS] < REQUESTS\n");
    return 2;
  }
  try {
    serve_stdin(argv[1], std::size_t(workers));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "server: %s\n", error.what());
    return 1;
  }
}
