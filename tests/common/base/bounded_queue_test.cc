#include "common/base/bounded_queue.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(BoundedQueueTest, PopReturnsItemsInTheOrderOfPush) {
  BoundedQueue<int> queue(3);
  for (int i : {1, 2, 3}) ASSERT_TRUE(queue.Push(i));
  for (int i : {1, 2, 3}) EXPECT_EQ(queue.Pop(), i);
}

TEST(BoundedQueueTest, PopReturnsNothingOnceClosedAndDrained) {
  BoundedQueue<int> queue(2);
  ASSERT_TRUE(queue.Push(7));
  queue.Close();
  EXPECT_FALSE(queue.Push(8));
  EXPECT_EQ(queue.Pop(), 7);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, AClosedQueueIsDrainedOnceItsLastItemIsTaken) {
  BoundedQueue<int> queue(2);
  EXPECT_FALSE(queue.drained());
  ASSERT_TRUE(queue.Push(7));
  queue.Close();
  EXPECT_FALSE(queue.drained());
  EXPECT_EQ(queue.PopFor(absl::ZeroDuration()), 7);
  EXPECT_TRUE(queue.drained());
}

TEST(BoundedQueueTest, TryPushLeavesTheItemWhenFull) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(queue.TryPush(std::move(second)));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(*second, 2);
}

TEST(BoundedQueueTest, PushForGivesUpAfterItsTimeoutAndLeavesTheItem) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  auto first = std::make_unique<int>(1);
  ASSERT_TRUE(queue.PushFor(first, absl::ZeroDuration()));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(queue.PushFor(second, absl::Milliseconds(1)));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(*second, 2);
}

TEST(BoundedQueueTest, PushForTakesTheRoomThatComes) {
  BoundedQueue<int> queue(1);
  ASSERT_TRUE(queue.Push(1));
  std::jthread consumer([&] { queue.Pop(); });
  int second = 2;
  EXPECT_TRUE(queue.PushFor(second, absl::Seconds(20)));
  consumer.join();
  EXPECT_EQ(queue.Pop(), 2);
}

TEST(BoundedQueueTest, PopForGivesUpAfterItsTimeout) {
  BoundedQueue<int> queue(1);
  EXPECT_EQ(queue.PopFor(absl::Milliseconds(1)), std::nullopt);
}

TEST(BoundedQueueTest, PushWaitsForRoomAndLosesNothing) {
  BoundedQueue<int> queue(2);
  constexpr int kItems = 1000;
  std::vector<int> seen;
  {
    std::jthread consumer([&] {
      while (auto item = queue.Pop()) seen.push_back(*item);
    });
    for (int i = 0; i < kItems; ++i) ASSERT_TRUE(queue.Push(i));
    queue.Close();
  }
  ASSERT_EQ(seen.size(), kItems);
  for (int i = 0; i < kItems; ++i) EXPECT_EQ(seen[i], i);
}

TEST(BoundedQueueTest, CloseEndsAWaitingPush) {
  BoundedQueue<int> queue(1);
  ASSERT_TRUE(queue.Push(1));
  std::jthread closer([&] { queue.Close(); });
  EXPECT_FALSE(queue.Push(2));
}

}  // namespace
}  // namespace dapd
