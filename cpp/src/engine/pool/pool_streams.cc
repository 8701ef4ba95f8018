// The streams of a pool: look-up, and making room for new ones.
#include <string>
#include <thread>
#include <utility>

#include "engine/pool/pool_impl.h"

namespace tsm {
namespace {

void refuse_busy(const StreamEntry& entry) {
  if (!entry.busy()) return;
  throw Error("the stream has requests that are not finished; accepted: an idle one",
              ErrorKind::kBusy);
}

}  // namespace

StreamEntry* StreamPool::Impl::find(std::string_view key, Lock& lock) {
  check_name("key", key);
  for (;;) {
    StreamEntry* const found = table.find(key);
    if (!found || !found->spilling()) return found;
    // A spill function that waited here would wait for itself.
    require(found->spilled_by != std::this_thread::get_id(),
            "the stream of that key is being spilled; accepted: another key, until then",
            ErrorKind::kBusy);
    spilled.wait(lock);  // after that it is gone, or idle again
  }
}

StreamEntry& StreamPool::Impl::idle(std::string_view key, Lock& lock) {
  StreamEntry* const found = find(key, lock);
  require(found, "key is not in the pool; accepted: that of a stream which was put or fed");
  refuse_busy(*found);
  return *found;
}

StreamEntry* StreamPool::Impl::find_or_make_room(std::string_view key, Lock& lock) {
  for (;;) {
    if (StreamEntry* const found = find(key, lock)) return found;
    if (table.size() < options.max_streams) return nullptr;
    StreamEntry* const oldest = table.oldest(!options.spill);
    if (!oldest) {
      ++counts.refused;
      throw Error("max_streams = " + std::to_string(options.max_streams) +
                      " streams are in use or were not saved; accepted: known keys, until some "
                      "are saved or dropped",
                  ErrorKind::kFull);
    }
    if (!oldest->clean) {
      spill(*oldest, lock);
      continue;
    }
    table.erase(*oldest);
    ++counts.dropped;
  }
}

void StreamPool::Impl::spill(StreamEntry& entry, Lock& lock) {
  table.use(entry);
  entry.spilled_by = std::this_thread::get_id();
  lock.unlock();
  try {
    options.spill(entry.key, entry.stream->save(), entry.position);
  } catch (...) {
    lock.lock();
    entry.spilled_by = {};
    table.idle(entry);
    spilled.notify_all();
    throw;
  }
  lock.lock();
  table.erase(entry);
  ++counts.spilled;
  spilled.notify_all();
}

void StreamPool::Impl::changed(StreamEntry& entry, bool clean) {
  table.use(entry);
  entry.position = entry.stream->position();
  entry.clean = clean;
  table.idle(entry);
}

void StreamPool::put(std::string_view key, const uint8_t* blob, int64_t bytes) {
  Impl& pool = open();
  check_name("key", key);
  std::unique_ptr<Stream> stream = pool.model->create_stream();
  stream->load(blob, bytes);
  Lock lock(pool.mutex);
  pool.refuse_closed();
  StreamEntry* const entry = pool.find_or_make_room(key, lock);
  if (!entry) {
    pool.table.add(key, std::move(stream), true);
    return;
  }
  refuse_busy(*entry);
  entry->stream = std::move(stream);
  pool.changed(*entry, true);
}

bool StreamPool::has(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  return pool.find(key, lock);
}

bool StreamPool::drop(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  StreamEntry* const entry = pool.find(key, lock);
  if (!entry) return false;
  refuse_busy(*entry);
  pool.table.erase(*entry);
  return true;
}

void StreamPool::fork(std::string_view key, std::string_view new_key) {
  Impl& pool = open();
  check_name("new_key", new_key);
  Lock lock(pool.mutex);
  pool.refuse_closed();
  std::unique_ptr<Stream> twin = pool.idle(key, lock).stream->fork();
  require(!pool.find_or_make_room(new_key, lock),
          "new_key is in the pool; accepted: an unknown one");
  pool.table.add(new_key, std::move(twin), false);
}

void StreamPool::reset(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  StreamEntry& entry = pool.idle(key, lock);
  entry.stream->reset();
  pool.changed(entry, false);
}

std::vector<uint8_t> StreamPool::save(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  StreamEntry& entry = pool.idle(key, lock);
  std::vector<uint8_t> blob = entry.stream->save();
  pool.changed(entry, true);
  return blob;
}

int64_t StreamPool::blob_bytes() const { return impl_->checks.blob_bytes(); }

int64_t StreamPool::position(std::string_view key) {
  Impl& pool = open();
  Lock lock(pool.mutex);
  return pool.idle(key, lock).position;
}

}  // namespace tsm
