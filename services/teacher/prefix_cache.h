// PrefixCache: computed chunks of token sequences, kept as a tree, so that
// sequences that begin alike share their prefix, and a prefix that was
// computed ahead is there when the rest is known.
//
// A chunk is found by its tokens and by the chunk before it; the first ones
// follow a root, of which each set of weights has one. What is found has the
// bits that computing it again would give, so neither the limit nor the order
// of requests shows in a result. Not thread-safe.
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
  // Keeps at most `max_bytes`. The least recently used chunk that nobody else
  // holds goes first; a held one keeps all before it.
  explicit PrefixCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // The chunk of `ids` behind `parent`, null if it is not there.
  PrefixChunkPtr Find(const PrefixChunkPtr& parent,
                      std::span<const int32_t> ids);

  // Drops what it must to have room for `bytes` more. False if all that is left
  // is held.
  bool MakeRoom(int64_t bytes);

  // Keeps `chunk` of `bytes` bytes, if there is room. False if not.
  bool Insert(PrefixChunkPtr chunk, int64_t bytes);

  // Drops whatever nobody else holds.
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
