#include "common/collective/nccl_api.h"

#include <chrono>
#include <string>

#include "gtest/gtest.h"

#include "tests/fakes/nccl_on_host.h"

namespace dapd {
namespace {

class NcclApiTest : public testing::Test {
 protected:
  int Join(double timeout_seconds) {
    char id[kNcclIdBytes] = "";
    EXPECT_EQ(DapdNcclUniqueId(id, error_), 0);
    return DapdNcclInit(id, 1, 2, timeout_seconds, &communicator_, error_);
  }
  NcclRanks Ranks(double timeout_seconds) const {
    return {communicator_, 1, 2, timeout_seconds};
  }
  int Sum(double timeout_seconds) { return Sum(Ranks(timeout_seconds)); }
  int Sum(const NcclRanks& ranks) {
    return DapdNcclSum(&ranks, values_, 4, /*stream=*/nullptr, error_);
  }

  SimulatedNccl& simulated_ = TheSimulatedNccl() = SimulatedNccl();
  void* communicator_ = nullptr;
  float values_[4] = {};
  char error_[kNcclErrorBytes] = "";
};

TEST_F(NcclApiTest, RanksThatNeverComeEndTheStartAndWhatItBegan) {
  simulated_.looks_to_join = -1;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NE(Join(0.05), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_NE(std::string(error_).find("not all ranks joined in time"),
            std::string::npos)
      << error_;
  EXPECT_FALSE(simulated_.blocks) << "a start that blocks cannot be ended";
  EXPECT_EQ(simulated_.aborts, 1);
  EXPECT_EQ(communicator_, nullptr);
}

TEST_F(NcclApiTest, ALateRankIsWaitedFor) {
  simulated_.looks_to_join = 20;
  EXPECT_EQ(Join(5), 0) << error_;
  EXPECT_NE(communicator_, nullptr);
  simulated_.looks_to_finish = 20;
  EXPECT_EQ(Sum(5), 0) << error_;
  EXPECT_EQ(simulated_.aborts, 0);
  DapdNcclDestroy(communicator_);
  EXPECT_EQ(simulated_.destroys, 1);
}

TEST_F(NcclApiTest, GathersTogetherAreOneLaunch) {
  ASSERT_EQ(Join(5), 0) << error_;
  const char parts[3][2] = {{1, 2}, {3, 4}, {5, 6}};
  char all[3][2] = {};
  const NcclGather gathers[] = {
      {parts[0], all[0], 2}, {parts[1], all[1], 2}, {parts[2], all[2], 2}};
  const NcclRanks ranks = Ranks(5);
  EXPECT_EQ(DapdNcclAllGather(&ranks, gathers, 3, /*stream=*/nullptr, error_),
            0)
      << error_;
  EXPECT_EQ(simulated_.gathers, 3);
  EXPECT_EQ(simulated_.launches, 1);
  EXPECT_EQ(all[2][1], 6);
}

TEST_F(NcclApiTest, BroadcastsTogetherAreOneLaunch) {
  ASSERT_EQ(Join(5), 0) << error_;
  char parts[3][2] = {};
  const NcclShared shared[] = {{parts[0], 2}, {parts[1], 2}, {parts[2], 2}};
  const NcclRanks ranks = Ranks(5);
  EXPECT_EQ(DapdNcclBroadcast(&ranks, shared, 3, /*stream=*/nullptr, error_), 0)
      << error_;
  EXPECT_EQ(simulated_.broadcasts, 3);
  EXPECT_EQ(simulated_.launches, 1);
}

TEST_F(NcclApiTest, ARankThatIsGoneEndsTheOperation) {
  ASSERT_EQ(Join(5), 0) << error_;
  simulated_.looks_to_finish = -1;
  EXPECT_NE(Sum(0.05), 0);
  EXPECT_NE(std::string(error_).find("did not join in time"), std::string::npos)
      << error_;
  EXPECT_EQ(simulated_.aborts, 1);

  simulated_ = SimulatedNccl();
  ASSERT_EQ(Join(5), 0) << error_;
  simulated_.looks_to_finish = -1;
  simulated_.breaks = true;
  EXPECT_NE(Sum(60), 0) << "an error is not waited for";
  EXPECT_EQ(std::string(error_), "ncclAllReduce: an NCCL error: its cause");
  EXPECT_EQ(simulated_.aborts, 1);
}

// NCCL's own state stays "in progress" when a process on the same machine ends.
TEST_F(NcclApiTest, ARankThatOthersKnowToBeGoneIsNotWaitedFor) {
  ASSERT_EQ(Join(5), 0) << error_;
  int questions = 0;
  NcclRanks ranks = Ranks(/*timeout_seconds=*/600);
  ranks.has_lost_rank = [](const void* knows) {
    return ++*static_cast<int*>(const_cast<void*>(knows)) == 3;
  };
  ranks.knows = &questions;
  simulated_.looks_to_finish = -1;
  EXPECT_NE(Sum(ranks), 0);
  EXPECT_EQ(std::string(error_), "ncclAllReduce: a rank is lost");
  EXPECT_EQ(questions, 3);
  EXPECT_EQ(simulated_.aborts, 1);

  questions = 0;
  EXPECT_NE(DapdNcclWaitFor(&ranks, /*event=*/nullptr, error_), 0);
  EXPECT_EQ(std::string(error_), "waiting: a rank is lost");
}

TEST_F(NcclApiTest, ACommunicatorIsLeftThoughARankIsGone) {
  ASSERT_EQ(Join(5), 0) << error_;
  EXPECT_EQ(Sum(5), 0) << error_;
  simulated_.breaks = true;
  DapdNcclDestroy(communicator_);
  EXPECT_EQ(simulated_.aborts, 1);
  EXPECT_EQ(simulated_.destroys, 0) << "it would wait for the rank";
}

TEST_F(NcclApiTest, WhatIsOnlyLaunchedIsNotWaitedForAndAbortsNothing) {
  ASSERT_EQ(Join(5), 0) << error_;
  const NcclRanks ranks = Ranks(/*timeout_seconds=*/0.05);
  simulated_.looks_to_finish = -1;
  const char part[2] = {1, 2};
  char all[2] = {};
  const NcclGather gather{part, all, 2};
  EXPECT_EQ(
      DapdNcclLaunchAllGather(&ranks, &gather, 1, /*stream=*/nullptr, error_),
      0)
      << error_;
  EXPECT_EQ(
      DapdNcclLaunchExchange(&ranks, part, all, 1, /*stream=*/nullptr, error_),
      0)
      << error_;
  EXPECT_EQ(simulated_.launches, 2);

  EXPECT_NE(DapdNcclWaitFor(&ranks, /*event=*/nullptr, error_), 0);
  EXPECT_NE(std::string(error_).find("did not join in time"), std::string::npos)
      << error_;
  EXPECT_EQ(simulated_.aborts, 0) << "it may still be used elsewhere";
  simulated_.looks_to_finish = 3;
  EXPECT_EQ(DapdNcclWaitFor(&ranks, /*event=*/nullptr, error_), 0) << error_;
  DapdNcclAbort(communicator_);
  EXPECT_EQ(simulated_.aborts, 1);
}

}  // namespace
}  // namespace dapd
