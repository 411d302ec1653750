#include "common/rpc/transfer/chunk_checksums.h"

#include "common/base/crc32c.h"

namespace dapd {

uint32_t ChunkChecksums::Of(uint64_t index, absl::string_view bytes) const {
  Chunk& chunk = chunks_.at(index);
  std::call_once(chunk.once, [&] { chunk.crc32c = Crc32c(bytes); });
  return chunk.crc32c;
}

}  // namespace dapd
