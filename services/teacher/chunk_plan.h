// ChunkPlan: which chunks of some views are to be computed, and in which
// passes.
//
// A view is a path through the tree of chunks (prefix_cache.h) from a root on.
// Chunks that are kept are taken from there, whole ones that several views have
// in common stand in the plan once. A pass takes chunks in their order, then
// later ones that still fit; a chunk comes after the one before it, in the same
// pass or in an earlier one. Everything is planned before the first pass is
// taken. Not thread-safe.
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
  // A chunk that is not computed yet: without states.
  using Open = std::shared_ptr<PrefixChunk>;

  // `chunk_tokens`: of a whole chunk.
  ChunkPlan(PrefixCache& cache, int64_t chunk_tokens)
      : cache_(cache), chunk_tokens_(chunk_tokens) {}

  // The chunk of `ids` behind `parent`: the one that is kept or planned, or
  // null.
  PrefixChunkPtr Find(const PrefixChunkPtr& parent,
                      std::span<const int32_t> ids);
  // Plans that chunk.
  PrefixChunkPtr Add(const PrefixChunkPtr& parent,
                     std::span<const int32_t> ids);
  // The last chunk of the path of `ids` behind `root`, planned as far as it was
  // not there.
  PrefixChunkPtr AddPath(const PrefixChunkPtr& root,
                         std::span<const int32_t> ids);

  // Tokens of the chunks that no pass has taken.
  int64_t tokens() const { return tokens_; }
  bool empty() const { return open_.empty(); }

  // Takes the chunks of the next pass: at most `rows` tokens, but one chunk at
  // least; none if nothing is planned.
  std::vector<Open> TakePass(int64_t rows);

  // Leaves out what none of these paths needs.
  void KeepOnly(std::span<const PrefixChunkPtr> ends);

 private:
  using Key = std::pair<const PrefixChunk*, std::vector<int32_t>>;

  PrefixCache& cache_;
  const int64_t chunk_tokens_;
  int64_t tokens_ = 0;
  std::vector<Open> open_;                 // in order
  std::map<Key, PrefixChunkPtr> planned_;  // the whole ones
};

// Whether a chunk's numbers are there.
inline bool IsComputed(const PrefixChunk& chunk) {
  return chunk.parent == nullptr || chunk.states.hidden.defined();
}

}  // namespace dapd
