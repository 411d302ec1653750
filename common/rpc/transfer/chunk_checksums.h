// ChunkChecksums: the CRC-32C of every chunk of what is sent to several
// receivers, computed once and not once for each of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// Thread-safe.
class ChunkChecksums {
 public:
  explicit ChunkChecksums(uint64_t num_chunks) : chunks_(num_chunks) {}

  // Of chunk number `index`, whose content is `bytes` and stays as it is.
  // Computed by whoever asks first; others wait for that.
  uint32_t Of(uint64_t index, absl::string_view bytes) const;

 private:
  struct Chunk {
    std::once_flag once;
    uint32_t crc32c = 0;
  };
  mutable std::vector<Chunk> chunks_;
};

}  // namespace dapd
