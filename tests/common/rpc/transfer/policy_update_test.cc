#include "common/rpc/transfer/policy_update.h"

#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/crc32c.h"

namespace dapd {
namespace {

TEST(ChunkChecksumsTest, EveryAskerGetsTheChecksumOfItsChunk) {
  const std::vector<std::string> chunks = {
      std::string(1000, 'a'), std::string(1000, 'b'), "c"};
  const ChunkChecksums checksums(chunks.size());
  std::vector<std::vector<uint32_t>> seen(4);
  {
    std::vector<std::jthread> askers;
    for (auto& of_asker : seen) {
      askers.emplace_back([&] {
        for (size_t i = 0; i < chunks.size(); ++i) {
          of_asker.push_back(checksums.Of(i, chunks[i]));
        }
      });
    }
  }
  const std::vector<uint32_t> expected = {
      Crc32c(chunks[0]), Crc32c(chunks[1]), Crc32c(chunks[2])};
  for (const auto& of_asker : seen) EXPECT_EQ(of_asker, expected);
}

TEST(ChunkChecksumsTest, TheSecondAskerCostsNoPass) {
  const ChunkChecksums checksums(1);
  const uint32_t first = checksums.Of(0, "first");
  // The first checksum is returned, so the other bytes were not read.
  EXPECT_EQ(checksums.Of(0, "other"), first);
}

}  // namespace
}  // namespace dapd
