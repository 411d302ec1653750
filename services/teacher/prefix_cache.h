// PrefixCache: computed chunks of token sequences, kept as a tree. Sequences
// with the same beginning share its chunks, and a prefix that was computed
// ahead is there when the complete sequence arrives.
//
// A chunk is found by its tokens and by the chunk before it. The first chunks
// follow a root; each set of weights has its own root. A kept chunk has the
// bits that a new computation would give, so neither the limit nor the order of
// requests changes a result. Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/model/fast/chunk_forward.h"

namespace dapd {

struct PrefixChunk {
  std::shared_ptr<const PrefixChunk> parent;  // null: a root
  std::vector<int32_t> ids;                   // none: a root
  int64_t end = 0;  // tokens of the sequence up to here
  ChunkStates states;
};
using PrefixChunkPtr = std::shared_ptr<const PrefixChunk>;

class PrefixCache {
 public:
  // Keeps at most `max_bytes`. Drops the least recently used chunk first, but
  // no chunk that somebody else holds, and no chunk before such a chunk.
  explicit PrefixCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns the chunk of `ids` behind `parent`; null if it is not kept.
  PrefixChunkPtr Find(const PrefixChunkPtr& parent,
                      std::span<const int32_t> ids);

  // Drops chunks until there is room for `bytes` more. Returns false if all
  // remaining chunks are held.
  bool MakeRoom(int64_t bytes);

  // Keeps `chunk` of `bytes` bytes. Returns false if there is no room.
  bool Insert(PrefixChunkPtr chunk, int64_t bytes);

  // Drops every chunk that nobody else holds.
  void Clear() { MakeRoom(max_bytes_); }

  int64_t bytes() const { return bytes_; }

 private:
  using Key = std::pair<const PrefixChunk*, std::vector<int32_t>>;
  struct Kept {
    PrefixChunkPtr chunk;
    int64_t bytes = 0;
  };
  using Order = std::list<Kept>;  // least recently used first

  const int64_t max_bytes_;
  int64_t bytes_ = 0;
  Order order_;
  std::map<Key, Order::iterator> by_key_;
};

}  // namespace dapd
