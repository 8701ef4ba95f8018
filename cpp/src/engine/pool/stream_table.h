// The streams of a pool by key, and which of them may go for others. The pool holds its lock.
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

  void use(StreamEntry& entry);   // it is not idle any more
  void idle(StreamEntry& entry);  // the one used last
  // The idle stream that was used least recently, of the clean ones or of all; null: none.
  StreamEntry* oldest(bool clean_only) const;

 private:
  using Idle = Linked<StreamEntry, &StreamEntry::in_idle>;

  std::unordered_map<std::string, StreamEntry> entries_;
  std::string key_;  // to look up without allocating
  Idle idle_[2];     // not clean, clean
  uint64_t last_used_ = 0;
};

}  // namespace tsm
