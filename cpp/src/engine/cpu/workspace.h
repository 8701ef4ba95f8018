// Memory that a call works in. A model keeps as many as calls ever ran at once, each grown to what
// it was asked for, so that after the first calls nothing is allocated.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

#include "core/aligned.h"
#include "engine/device/device.h"
#include "engine/device/overlap.h"

namespace tsm {

// An array that only grows; growing loses what it held.
template <class T>
class Buffer {
 public:
  void reserve(int64_t count) {
    if (memory_.size() < count) memory_ = Aligned<T>(count);
  }
  T* data() const { return memory_.data(); }

 private:
  Aligned<T> memory_;
};

// A row of logits that is wanted: of the encoded row `row`, written to `out`; or, with a token, its
// log-probability alone.
struct Wanted {
  int64_t row;
  int64_t token;  // -1: logits
  float* out;
};

// Where a stream stood before a call that generates.
struct Started {
  bool held = false;
  int64_t position = 0;
  double time = 0;
};

struct Workspace {
  // That were computed in it: they say which way to read the weights (multiply_sweep).
  int64_t slices = 0, steps = 0;
  // Of the whole call.
  Buffer<int64_t> order;
  Buffer<float> backup;
  std::vector<NotFinite> broken;
  Buffer<Slot*> slots;
  Buffer<OutputSpan> spans;
  // Of a slice (engine/cpu/layer.h).
  Buffer<float*> memory;
  Buffer<int64_t> active, first, tokens;
  Buffer<float> dt, rows, z, scratch;
  Buffer<uint8_t> x, y[2], encoded;  // y: of one layer and of the one before it
  // Of the head.
  Buffer<Wanted> wanted;
  Buffer<uint8_t> gathered;
  Buffer<float> logits;
  // Of sampling, and of a call that generates (engine/generate.h).
  Buffer<double> weights;
  Buffer<int64_t> candidates, drawn;
  std::vector<Chunk> chunks;
  std::vector<Started> started;
};

// As many of T as were ever used at once; the oldest that is free is taken, so that few grow large.
// There is no lock, so that a child made by fork() can go on whatever other threads did at that
// moment: what they had in use stays in use there.
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

// One of them for as long as a call runs.
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
