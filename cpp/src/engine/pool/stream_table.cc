#include "engine/pool/stream_table.h"

#include <utility>

namespace tsm {

StreamEntry* StreamTable::find(std::string_view key) {
  key_.assign(key);
  const auto found = entries_.find(key_);
  return found == entries_.end() ? nullptr : &found->second;
}

StreamEntry& StreamTable::add(std::string_view key, std::unique_ptr<Stream> stream, bool clean) {
  const auto at = entries_.try_emplace(std::string(key)).first;
  StreamEntry& entry = at->second;
  entry.key = at->first;
  entry.stream = std::move(stream);
  entry.position = entry.stream->position();
  entry.clean = clean;
  idle(entry);
  return entry;
}

void StreamTable::erase(StreamEntry& entry) {
  use(entry);
  key_.assign(entry.key);  // erasing frees it
  entries_.erase(key_);
}

void StreamTable::use(StreamEntry& entry) {
  if (Idle::holds(entry)) idle_[entry.clean].remove(entry);
}

void StreamTable::idle(StreamEntry& entry) {
  use(entry);
  entry.last_used = ++last_used_;
  idle_[entry.clean].push_back(entry);
}

StreamEntry* StreamTable::oldest(bool clean_only) const {
  StreamEntry *const unsaved = idle_[0].front(), *const clean = idle_[1].front();
  if (clean_only || !unsaved) return clean;
  return clean && clean->last_used < unsaved->last_used ? clean : unsaved;
}

}  // namespace tsm
