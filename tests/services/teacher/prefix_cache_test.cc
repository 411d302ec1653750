#include "services/teacher/prefix_cache.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

// Has chunks without numbers, of 10 bytes each, in a cache of 30 bytes.
class PrefixCacheTest : public ::testing::Test {
 protected:
  static PrefixChunkPtr Make(const PrefixChunkPtr& parent,
                             std::vector<int32_t> ids) {
    auto chunk = std::make_shared<PrefixChunk>();
    chunk->parent = parent;
    chunk->ids = std::move(ids);
    return chunk;
  }
  // Inserts a chunk without holding it.
  bool Add(const PrefixChunkPtr& parent, int32_t id) {
    return cache_.Insert(Make(parent, {id}), 10);
  }
  PrefixChunkPtr Find(const PrefixChunkPtr& parent, int32_t id) {
    return cache_.Find(parent, std::vector<int32_t>{id});
  }

  PrefixChunkPtr root_ = std::make_shared<PrefixChunk>();
  PrefixCache cache_{30};
};

TEST_F(PrefixCacheTest, AChunkIsFoundByItsTokensAndWhatStandsBefore) {
  ASSERT_TRUE(Add(root_, 1));
  const PrefixChunkPtr first = Find(root_, 1);
  ASSERT_NE(first, nullptr);
  ASSERT_TRUE(Add(first, 2));
  EXPECT_NE(Find(first, 2), nullptr);
  EXPECT_EQ(Find(root_, 2), nullptr);
  EXPECT_EQ(Find(std::make_shared<PrefixChunk>(), 1), nullptr);
  EXPECT_EQ(cache_.bytes(), 20);
}

TEST_F(PrefixCacheTest, TheLeastRecentlyUsedGoesFirst) {
  for (const int32_t id : {1, 2, 3}) ASSERT_TRUE(Add(root_, id));
  EXPECT_NE(Find(root_, 1), nullptr);
  ASSERT_TRUE(Add(root_, 4));
  EXPECT_EQ(Find(root_, 2), nullptr);
  EXPECT_NE(Find(root_, 1), nullptr);
  EXPECT_EQ(cache_.bytes(), 30);
}

TEST_F(PrefixCacheTest, WhatIsHeldStaysWithAllBeforeIt) {
  ASSERT_TRUE(Add(root_, 1));
  ASSERT_TRUE(Add(Find(root_, 1), 2));
  PrefixChunkPtr held = Find(Find(root_, 1), 2);
  ASSERT_TRUE(Add(root_, 3));
  ASSERT_TRUE(Add(root_, 4));
  EXPECT_EQ(Find(root_, 3), nullptr);
  EXPECT_NE(Find(Find(root_, 1), 2), nullptr);
  EXPECT_FALSE(cache_.MakeRoom(20));
  held.reset();
  EXPECT_TRUE(cache_.MakeRoom(30));
  EXPECT_EQ(cache_.bytes(), 0);
}

TEST_F(PrefixCacheTest, MoreThanTheLimitIsNotKept) {
  EXPECT_FALSE(cache_.Insert(Make(root_, {1}), 31));
  EXPECT_EQ(cache_.bytes(), 0);
}

TEST_F(PrefixCacheTest, TheSameChunkIsKeptOnce) {
  ASSERT_TRUE(Add(root_, 1));
  ASSERT_TRUE(Add(root_, 1));
  EXPECT_EQ(cache_.bytes(), 10);
}

}  // namespace
}  // namespace dapd
