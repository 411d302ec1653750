#include "services/teacher/chunk_plan.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

// Plans with chunks of 4 tokens.
class ChunkPlanTest : public ::testing::Test {
 protected:
  static std::vector<int32_t> Ids(int64_t count, int32_t first = 0) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }
  // Returns the ends of each pass's chunks.
  std::vector<std::vector<int64_t>> Passes(int64_t rows) {
    std::vector<std::vector<int64_t>> passes;
    while (!plan_.empty()) {
      std::vector<int64_t>& ends = passes.emplace_back();
      for (const ChunkPlan::Open& chunk : plan_.TakePass(rows)) {
        ends.push_back(chunk->end);
      }
    }
    return passes;
  }

  using Ends = std::vector<std::vector<int64_t>>;

  PrefixCache cache_{int64_t{1} << 20};
  ChunkPlan plan_{cache_, 4};
  PrefixChunkPtr root_ = std::make_shared<const PrefixChunk>();
};

TEST_F(ChunkPlanTest, APathIsCutIntoWholeChunksAndARest) {
  EXPECT_EQ(plan_.AddPath(root_, Ids(10))->end, 10);
  EXPECT_EQ(plan_.tokens(), 10);
  EXPECT_EQ(Passes(100), (Ends{{4, 8, 10}}));
  EXPECT_EQ(plan_.tokens(), 0);
}

TEST_F(ChunkPlanTest, APassOfNoRoomTakesOneChunk) {
  plan_.AddPath(root_, Ids(10));
  EXPECT_EQ(Passes(1), (Ends{{4}, {8}, {10}}));
}

TEST_F(ChunkPlanTest, LaterChunksFillAPassButNoneComesBeforeItsParent) {
  plan_.AddPath(root_, Ids(11));
  plan_.AddPath(root_, Ids(2, 50));
  plan_.AddPath(root_, Ids(7, 80));
  // The first pass takes 4 and 8 of the first path. The path's rest has three
  // tokens, too many for the two rows left, so these go to the second path.
  EXPECT_EQ(Passes(10), (Ends{{4, 8, 2}, {11, 4, 7}}));
}

TEST_F(ChunkPlanTest, WhatPathsShareIsPlannedOnce) {
  std::vector<int32_t> other = Ids(12);
  other[9] = 99;
  plan_.AddPath(root_, Ids(12));
  plan_.AddPath(root_, other);
  EXPECT_EQ(plan_.tokens(), 16);
  EXPECT_EQ(Passes(100), (Ends{{4, 8, 12, 12}}));
}

TEST_F(ChunkPlanTest, WhatIsKeptIsNotPlanned) {
  auto kept = std::make_shared<PrefixChunk>();
  kept->parent = root_;
  kept->ids = Ids(4);
  kept->end = 4;
  cache_.Insert(kept, 1);
  plan_.AddPath(root_, Ids(6));
  EXPECT_EQ(Passes(100), (Ends{{6}}));
}

TEST_F(ChunkPlanTest, WhatNoPathNeedsIsLeftOut) {
  const PrefixChunkPtr first = plan_.AddPath(root_, Ids(6));
  std::vector<int32_t> other = Ids(8);
  other[5] = 99;
  plan_.AddPath(root_, other);
  plan_.KeepOnly({&first, 1});
  EXPECT_EQ(plan_.tokens(), 6);
  EXPECT_EQ(Passes(100), (Ends{{4, 6}}));
}

}  // namespace
}  // namespace dapd
