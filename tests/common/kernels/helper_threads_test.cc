#include "common/kernels/helper_threads.h"

#include <atomic>
#include <latch>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/parallel_for.h"

namespace dapd {
namespace {

template <typename Body>
void RunLoop(int helpers, int64_t count, const Body& body) {
  HelperThreads::Instance().Run(
      helpers,
      count,
      /*piece=*/1,
      [](const void* context, int64_t i) {
        (*static_cast<const Body*>(context))(i);
      },
      &body);
}

TEST(HelperThreadsTest, EveryIterationRunsOnceWhoeverElseAsks) {
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([caller] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int> runs(100, 0);
        RunLoop(
            caller, 100, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
        ASSERT_EQ(runs, std::vector<int>(100, 1));
      }
    });
  }
}

TEST(HelperThreadsTest, HelpersTakePart) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::latch both(2);
  // Neither iteration ends before both have begun.
  RunLoop(1, 2, [&](int64_t) {
    {
      const std::scoped_lock lock(mutex);
      threads.insert(std::this_thread::get_id());
    }
    both.arrive_and_wait();
  });
  EXPECT_EQ(threads.size(), 2U);
}

// Another loop holds the only helper; OpenMP would wait for it.
TEST(HelperThreadsTest, ALoopWaitsForNoHelperThatDidNotBegin) {
  std::latch held(2);
  std::latch release(1);
  std::jthread other([&] {
    RunLoop(1, 2, [&](int64_t) {
      held.count_down();
      release.wait();
    });
  });
  held.wait();
  std::atomic<int> sum = 0;
  RunLoop(1, 100, [&](int64_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 4950);
  release.count_down();
}

TEST(HelperThreadsTest, ALoopInsideOfALoopStaysInItsThread) {
  RunLoop(3, 20, [](int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    RunLoop(
        3, 20, [&](int64_t) { EXPECT_EQ(std::this_thread::get_id(), self); });
  });
}

TEST(HelperThreadsTest, WhatIterationsThrowReachesTheCaller) {
  std::latch both(2);
  // A helper runs one of the two iterations.
  EXPECT_THROW(RunLoop(1,
                       2,
                       [&](int64_t) {
                         both.arrive_and_wait();
                         throw std::bad_alloc();
                       }),
               std::bad_alloc);
  // The helper takes part in the next loop.
  std::latch again(2);
  RunLoop(1, 2, [&](int64_t) { again.arrive_and_wait(); });
}

TEST(ParallelForTest, EveryIterationRunsOnce) {
  for (const int threads : {1, 2, 5}) {
    std::vector<int> runs(1000, 0);
    ParallelFor(
        threads, 1000, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    EXPECT_EQ(runs, std::vector<int>(1000, 1));
  }
}

TEST(ParallelForTest, WhatIterationsThrowReachesTheCaller) {
  std::atomic<int> runs = 0;
  const auto throw_at_odd = [&](int64_t i) {
    if (i % 2 == 1) throw std::bad_alloc();
    ++runs;
  };
  for (const int threads : {1, 4}) {
    EXPECT_THROW(ParallelFor(threads, 1000, throw_at_odd), std::bad_alloc);
  }
  EXPECT_GT(runs, 0);
}

TEST(ThreadsWorthTest, LittleWorkWakesNobody) {
  EXPECT_EQ(ThreadsWorth(8, 0.0), 1);
  EXPECT_EQ(ThreadsWorth(8, 39000.0), 1);
  EXPECT_EQ(ThreadsWorth(8, 70000.0), 3);
  EXPECT_EQ(ThreadsWorth(8, 1e12), 8);
  EXPECT_EQ(ThreadsWorth(1, 1e12), 1);
}

}  // namespace
}  // namespace dapd
