// The objects behind Python's Model and Stream. Closing one releases its engine object; a running
// call has its own shared pointer and ends normally. Everything here needs the GIL; to work without
// it, call share() first.
#pragma once
#include <pybind11/pybind11.h>

#include <memory>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "engine/model.h"
#include "engine/stream.h"

namespace tsm::bindings {

// An engine object that may have been closed; using it then throws tsm::Error.
template <class T>
class Open {
 public:
  explicit Open(std::shared_ptr<T> held) : held_(std::move(held)) {}
  const std::shared_ptr<T>& share() const {
    if (!held_) throw Error(why_);
    return held_;
  }
  T* get() const { return share().get(); }
  T* operator->() const { return get(); }
  T& operator*() const { return *get(); }
  bool closed() const { return !held_; }
  void close(const char* why) {
    if (held_) why_ = why;
    held_.reset();
  }

 private:
  std::shared_ptr<T> held_;
  const char* why_ = "";
};

class PyStream;

class PyModel {
 public:
  PyModel(std::shared_ptr<const Model> opened, pybind11::object path)
      : model(std::move(opened)), path(std::move(path)) {}
  PyModel(const PyModel&) = delete;
  PyModel& operator=(const PyModel&) = delete;
  void close();  // closes its streams as well

  Open<const Model> model;
  const pybind11::object path;  // absolute, a str
  pybind11::object pieces;      // the sentencepiece tokenizer, loaded on first use

 private:
  friend class PyStream;
  std::unordered_set<PyStream*> streams_;
};

// A stream keeps its model alive.
class PyStream {
 public:
  PyStream(std::shared_ptr<PyModel> of, std::unique_ptr<Stream> opened)
      : owner(std::move(of)), stream(std::move(opened)) {
    owner->streams_.insert(this);
    if (owner->model.closed()) close("the stream's model is closed");  // it was closed meanwhile
  }
  ~PyStream() { owner->streams_.erase(this); }
  PyStream(const PyStream&) = delete;
  PyStream& operator=(const PyStream&) = delete;
  const Model& model() const { return stream->model(); }
  void close(const char* why) { stream.close(why); }

  const std::shared_ptr<PyModel> owner;
  Open<Stream> stream;
};

inline void PyModel::close() {
  for (PyStream* stream : streams_) stream->close("the stream's model is closed");
  model.close("the model is closed");
  pieces = pybind11::object();
}

using ModelClass = pybind11::class_<PyModel, std::shared_ptr<PyModel>>;
using StreamClass = pybind11::class_<PyStream>;

void bind_cancel(pybind11::module_& m);                      // Cancel
void bind_feeding(ModelClass& model, StreamClass& stream);   // feed, score, generate, and *_many
void bind_lifetime(ModelClass& model, StreamClass& stream);  // close, with, copies, pickles
void bind_text(ModelClass& model);                           // encode, decode
void bind_pool(pybind11::module_& m);                        // StreamPool

uint64_t seed_of(pybind11::handle seed);                           // 0 to 2^64 - 1
pybind11::buffer_info row_of_bytes(const pybind11::buffer& blob);  // of a saved state

}  // namespace tsm::bindings
