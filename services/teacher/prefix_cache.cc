#include "services/teacher/prefix_cache.h"

namespace dapd {

PrefixChunkPtr PrefixCache::Find(const PrefixChunkPtr& parent,
                                 std::span<const int32_t> ids) {
  const auto found = by_key_.find({parent.get(), {ids.begin(), ids.end()}});
  if (found == by_key_.end()) return nullptr;
  order_.splice(order_.end(), order_, found->second);
  return found->second->chunk;
}

bool PrefixCache::MakeRoom(int64_t bytes) {
  for (auto kept = order_.begin();
       kept != order_.end() && bytes_ + bytes > max_bytes_;) {
    // The children of a chunk hold it, too, so it is dropped only after the
    // chunks behind it.
    if (kept->chunk.use_count() > 1) {
      ++kept;
      continue;
    }
    bytes_ -= kept->bytes;
    by_key_.erase({kept->chunk->parent.get(), kept->chunk->ids});
    order_.erase(kept);
    // A parent that was still held before may be free now.
    kept = order_.begin();
  }
  return bytes_ + bytes <= max_bytes_;
}

bool PrefixCache::Insert(PrefixChunkPtr chunk, int64_t bytes) {
  if (!MakeRoom(bytes)) return false;
  const Key key = {chunk->parent.get(), chunk->ids};
  order_.push_back({std::move(chunk), bytes});
  const auto [place, added] = by_key_.emplace(key, std::prev(order_.end()));
  if (!added) {
    order_.pop_back();
    return true;
  }
  bytes_ += bytes;
  return true;
}

}  // namespace dapd
