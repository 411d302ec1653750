#include "common/rpc/pool/prefix_board.h"

#include "gtest/gtest.h"

#include "tests/fakes/fake_worker.h"

namespace dapd {
namespace {

using Prefixes = PrefixBoard<FakeTask>;

TEST(PrefixBoardTest, NewsGoesToOneWorkerUntilItIsTold) {
  Prefixes board;
  board.Tell({3, 10});
  EXPECT_FALSE(board.Next(1, /*adopts=*/false).has_value());
  const auto news = board.Next(1, /*adopts=*/true);
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(news->id, 3U);
  EXPECT_EQ(news->task->known, 10);
  EXPECT_EQ(board.Home(3), 1);
  EXPECT_FALSE(board.Next(1, true).has_value());
  board.Tell({3, 20});
  EXPECT_FALSE(board.Next(2, true).has_value());
  EXPECT_EQ(board.Next(1, false)->task->known, 20);
}

TEST(PrefixBoardTest, ACompleteTaskKeepsItsHomeAndIsNoNews) {
  Prefixes board;
  board.Tell({3, 10});
  board.Next(1, true);
  board.Tell({3, 20});
  board.Complete(3);
  EXPECT_FALSE(board.Next(1, true).has_value());
  EXPECT_EQ(board.Home(3), 1);
  board.Take(3, 1);
  EXPECT_EQ(board.size(), 0);
}

TEST(PrefixBoardTest, AHomeThatDoesNotGetTheTaskIsToldSo) {
  Prefixes board;
  board.Tell({3, 10});
  board.Next(1, true);
  board.Complete(3);
  board.Take(3, 2);
  const auto news = board.Next(1, false);
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(news->id, 3U);
  EXPECT_EQ(news->task, nullptr);
  EXPECT_EQ(board.size(), 0);
}

TEST(PrefixBoardTest, NewsComesInTheOrderOfTheIdsWhoseverItIs) {
  Prefixes board;
  EXPECT_FALSE(board.HasOrphans());
  board.Tell({3, 10});
  board.Next(1, true);
  EXPECT_FALSE(board.HasOrphans());
  for (const uint64_t id : {4, 2}) board.Tell({id, 10});
  board.Tell({3, 20});
  EXPECT_TRUE(board.HasOrphans());
  for (const uint64_t id : {2, 3, 4}) EXPECT_EQ(board.Next(1, true)->id, id);
  EXPECT_FALSE(board.HasOrphans());
  EXPECT_EQ(board.Homes(1), 3);
  board.Release(1);
  EXPECT_EQ(board.Homes(1), 0);
  EXPECT_TRUE(board.HasOrphans());
  for (const uint64_t id : {2, 3, 4}) board.Withdraw(id);
  EXPECT_FALSE(board.HasOrphans());
  EXPECT_EQ(board.size(), 0);
}

TEST(PrefixBoardTest, WhatNobodyWasToldIsWithdrawnInSilence) {
  Prefixes board;
  board.Tell({3, 10});
  board.Withdraw(3);
  board.Withdraw(4);
  EXPECT_EQ(board.size(), 0);
}

TEST(PrefixBoardTest, AReleasedTaskIsToldAnewUnlessItIsComplete) {
  Prefixes board;
  for (const uint64_t id : {3, 4, 5}) {
    board.Tell({id, 10});
    board.Next(1, true);
  }
  board.Complete(4);
  board.Withdraw(5);
  board.Release(1);
  EXPECT_EQ(board.size(), 2);
  EXPECT_EQ(board.Home(3), Prefixes::kNobody);
  EXPECT_EQ(board.Next(2, true)->id, 3U);
  EXPECT_FALSE(board.Next(2, true).has_value());
  EXPECT_EQ(board.Homes(2), 1);
}

}  // namespace
}  // namespace dapd
