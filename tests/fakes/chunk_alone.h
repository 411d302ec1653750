// Turns a chunk of a pass over several chunks into a pass of its own.
#pragma once

#include <cstddef>
#include <vector>

#include "common/model/fast/chunk_forward.h"

namespace dapd {

// Returns chunks[i] with its parent, if it has one, as part of the past.
// `together` is the result of the pass over all chunks.
inline NextChunk ChunkAlone(const std::vector<NextChunk>& chunks,
                            const std::vector<ChunkStates>& together,
                            size_t i) {
  NextChunk alone = chunks[i];
  if (alone.parent >= 0) {
    const auto parent = static_cast<size_t>(alone.parent);
    alone.past = chunks[parent].past;
    alone.past.push_back(together[parent].keys_values);
    alone.parent = -1;
  }
  return alone;
}

}  // namespace dapd
