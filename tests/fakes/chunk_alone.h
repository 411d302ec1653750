// A chunk of a pass over several, as a pass of its own takes it.
#pragma once

#include <cstddef>
#include <vector>

#include "common/model/fast/chunk_forward.h"

namespace dapd {

// chunks[i], whose parent among them, if it has one, is the past: `together`
// has what the pass over all of them gave.
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
