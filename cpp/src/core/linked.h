// An intrusive list: adding and removing elements allocates nothing and cannot fail.
#pragma once
#include <cstdint>

namespace tsm {

template <class T>
struct Link {
  T *before = nullptr, *after = nullptr;
  bool listed = false;
};

// An element can be in one list per link.
template <class T, Link<T> T::* link>
class Linked {
 public:
  bool empty() const { return !first_; }
  T* front() const { return first_; }
  static bool holds(const T& element) { return (element.*link).listed; }

  void push_back(T& element) {
    element.*link = {last_, nullptr, true};
    (last_ ? (last_->*link).after : first_) = &element;
    last_ = &element;
  }
  void push_front(T& element) {
    element.*link = {nullptr, first_, true};
    (first_ ? (first_->*link).before : last_) = &element;
    first_ = &element;
  }
  void remove(T& element) {
    const Link<T> at = element.*link;
    (at.before ? (at.before->*link).after : first_) = at.after;
    (at.after ? (at.after->*link).before : last_) = at.before;
    element.*link = {};
  }
  T* pop_front() {
    T* const element = first_;
    remove(*element);
    return element;
  }

 private:
  T *first_ = nullptr, *last_ = nullptr;
};

}  // namespace tsm
