// Objects that calls borrow while they run.
#pragma once
#include <atomic>
#include <utility>

namespace tsm {

// Holds as many T as were ever in use at once. The oldest free one is reused, so that only a few
// grow large. There is no lock, so a child created by fork() can go on borrowing, no matter what
// other threads were doing; objects that they had borrowed stay borrowed in the child.
template <class T>
class Leases {
 public:
  struct Entry {
    T value;
    std::atomic<bool> taken{true};
    std::atomic<Entry*> next{nullptr};
  };

  Leases() = default;
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;
  ~Leases() {
    for (Entry* entry = first_.load(); entry;) delete std::exchange(entry, entry->next.load());
  }

  Entry& take() {
    std::atomic<Entry*>* link = &first_;  // the list only grows, at its end
    for (Entry* entry; (entry = link->load(std::memory_order_acquire)); link = &entry->next) {
      if (!entry->taken.load(std::memory_order_relaxed) &&
          !entry->taken.exchange(true, std::memory_order_acquire))
        return *entry;
    }
    Entry* const made = new Entry;
    for (Entry* other = nullptr; !link->compare_exchange_strong(other, made); other = nullptr)
      link = &other->next;
    return *made;
  }
  static void give(Entry& entry) { entry.taken.store(false, std::memory_order_release); }

 private:
  std::atomic<Entry*> first_{nullptr};
};

// Borrows one of these objects for the duration of a call.
template <class T>
class Lease {
 public:
  explicit Lease(Leases<T>& from) : entry_(from.take()) {}
  ~Lease() { Leases<T>::give(entry_); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  T& operator*() const { return entry_.value; }

 private:
  typename Leases<T>::Entry& entry_;
};

}  // namespace tsm
