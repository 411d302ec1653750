#include "common/generation/kv_budget.h"

#include <limits>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(KvBudgetTest, HoldersGrowUpToTheLimitTogether) {
  KvBudget budget(100);
  EXPECT_TRUE(budget.Raise(1, 40));
  EXPECT_TRUE(budget.Raise(2, 50));
  EXPECT_FALSE(budget.Raise(1, 51));
  EXPECT_EQ(budget.held_by(1), 40);
  EXPECT_TRUE(budget.Raise(1, 50));
  EXPECT_EQ(budget.bytes(), 100);
  EXPECT_TRUE(budget.HasRoomFor(0));
  EXPECT_FALSE(budget.HasRoomFor(1));
}

TEST(KvBudgetTest, WhoAsksForLessKeepsWhatItHas) {
  KvBudget budget(100);
  EXPECT_TRUE(budget.Raise(1, 100));
  EXPECT_TRUE(budget.Raise(1, 30));
  EXPECT_EQ(budget.held_by(1), 100);
}

TEST(KvBudgetTest, WhatIsReleasedIsThereForOthers) {
  KvBudget budget(100);
  EXPECT_TRUE(budget.Raise(1, 60));
  EXPECT_TRUE(budget.Raise(2, 40));
  budget.Release(1);
  budget.Release(7);
  EXPECT_EQ(budget.held_by(1), 0);
  EXPECT_EQ(budget.bytes(), 40);
  EXPECT_TRUE(budget.Raise(2, 100));
}

TEST(KvBudgetTest, NoLimitIsTheLargestNumber) {
  KvBudget budget(std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(budget.Raise(1, int64_t{1} << 60));
  EXPECT_TRUE(budget.HasRoomFor(int64_t{1} << 61));
}

}  // namespace
}  // namespace dapd
