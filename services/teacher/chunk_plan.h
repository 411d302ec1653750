// ChunkPlan: the chunks that some views still need, and the passes that compute
// them.
//
// A view is a path through the tree of chunks (prefix_cache.h), which begins at
// a root. A chunk that the cache keeps is taken from there; a whole chunk that
// several views share is planned once. A pass takes chunks in their order, then
// later chunks that still fit; a chunk is computed after the chunk before it,
// in the same pass or in an earlier pass. Everything is planned before the
// first pass is taken. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "services/teacher/prefix_cache.h"

namespace dapd {

class ChunkPlan {
 public:
  // A chunk that is not computed yet and has no states.
  using Open = std::shared_ptr<PrefixChunk>;

  // `chunk_tokens`: the size of a whole chunk.
  ChunkPlan(PrefixCache& cache, int64_t chunk_tokens)
      : cache_(cache), chunk_tokens_(chunk_tokens) {}

  // Returns the kept or planned chunk of `ids` behind `parent`; null if there
  // is none.
  PrefixChunkPtr Find(const PrefixChunkPtr& parent,
                      std::span<const int32_t> ids);
  // Plans the chunk of `ids` behind `parent`.
  PrefixChunkPtr Add(const PrefixChunkPtr& parent,
                     std::span<const int32_t> ids);
  // Returns the last chunk of the path of `ids` behind `root`. Plans its
  // missing chunks.
  PrefixChunkPtr AddPath(const PrefixChunkPtr& root,
                         std::span<const int32_t> ids);

  // Returns the tokens of the chunks that no pass has taken.
  int64_t tokens() const { return tokens_; }
  bool empty() const { return open_.empty(); }

  // Takes the chunks of the next pass: at least one chunk, and otherwise at
  // most `rows` tokens. Returns nothing if nothing is planned.
  std::vector<Open> TakePass(int64_t rows);

  // Drops the planned chunks that none of these paths needs.
  void KeepOnly(std::span<const PrefixChunkPtr> ends);

 private:
  using Key = std::pair<const PrefixChunk*, std::vector<int32_t>>;

  PrefixCache& cache_;
  const int64_t chunk_tokens_;
  int64_t tokens_ = 0;
  std::vector<Open> open_;                 // in order
  std::map<Key, PrefixChunkPtr> planned_;  // whole chunks
};

// Returns whether the chunk has been computed.
inline bool IsComputed(const PrefixChunk& chunk) {
  return chunk.parent == nullptr || chunk.states.hidden.defined();
}

}  // namespace dapd
