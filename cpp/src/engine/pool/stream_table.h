// The streams of a pool by key, and which of them may be replaced. The caller holds the pool's
// lock.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/pool/request.h"

namespace tsm {

class StreamTable {
 public:
  StreamEntry* find(std::string_view key);  // null: unknown
  StreamEntry& add(std::string_view key, std::unique_ptr<Stream> stream, bool clean);  // idle
  void erase(StreamEntry& entry);
  int64_t size() const { return int64_t(entries_.size()); }

  void use(StreamEntry& entry);   // it is no longer idle
  void idle(StreamEntry& entry);  // as the most recently used
  // The least recently used idle stream, of the clean ones or of all; null if there is none.
  StreamEntry* oldest(bool clean_only) const;

 private:
  using Idle = Linked<StreamEntry, &StreamEntry::in_idle>;

  std::unordered_map<std::string, StreamEntry> entries_;
  std::string key_;  // for look-ups without allocation
  Idle idle_[2];     // not clean, clean
  uint64_t last_used_ = 0;
};

}  // namespace tsm
