#include "common/collective/collective.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/collective/ended_job.h"
#include "common/collective/rank_follower.h"
#include "common/collective/rank_leader.h"
#include "common/rpc/server/server.h"
#include "tests/fakes/eventually.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// Returns an address with a port that was free a moment ago.
std::string FreeAddress() {
  auto server = RpcServer::Start({.listen = "127.0.0.1:0"}, {});
  EXPECT_TRUE(server.ok()) << server.status();
  return absl::StrCat("127.0.0.1:", (*server)->port());
}

using Joined = absl::StatusOr<std::unique_ptr<Collective>>;

// Makes all ranks of a job, each on its own thread.
class CollectiveTest : public ::testing::TestWithParam<int> {
 protected:
  std::vector<std::unique_ptr<Collective>> Join(int size) {
    RankOptions options;
    options.world_size = size;
    options.rendezvous = FreeAddress();
    options.identity = "same";
    options.join_timeout = absl::Seconds(30);
    options.operation_timeout = timeout_;
    options.called = called_;
    options.when_lost = when_lost_;
    std::vector<std::future<Joined>> joining;
    for (int rank = 0; rank < size; ++rank) {
      options.rank = rank;
      joining.push_back(std::async(std::launch::async, [options] {
        return options.rank == 0 ? StartRankLeader(options)
                                 : JoinRankLeader(options);
      }));
    }
    std::vector<std::unique_ptr<Collective>> ranks;
    for (auto& rank : joining) {
      Joined joined = rank.get();
      EXPECT_TRUE(joined.ok()) << joined.status();
      ranks.push_back(joined.ok() ? *std::move(joined) : MakeSingleRank());
    }
    return ranks;
  }

  // Runs `operation` on every rank at the same time and returns the statuses.
  template <typename Operation>
  static std::vector<absl::Status> OnAll(
      std::vector<std::unique_ptr<Collective>>& ranks, Operation operation) {
    std::vector<std::future<absl::Status>> running;
    for (auto& rank : ranks) {
      running.push_back(std::async(
          std::launch::async, [&rank, operation] { return operation(*rank); }));
    }
    std::vector<absl::Status> statuses;
    for (auto& future : running) statuses.push_back(future.get());
    return statuses;
  }

  absl::Duration timeout_ = absl::Seconds(30);
  std::string called_ = RankOptions().called;
  std::string when_lost_ = RankOptions().when_lost;
};

std::vector<float> ValuesOf(int rank, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST_P(CollectiveTest, ASumIsThatOfTheRanksInTheirOrder) {
  auto ranks = Join(GetParam());
  // The sizes are less than a chunk, one chunk, and several chunks with a rest.
  for (const size_t count : {size_t{1}, size_t{262144}, size_t{700001}}) {
    std::vector<float> expected(count, 0.0F);
    for (int rank = 0; rank < GetParam(); ++rank) {
      const std::vector<float> values = ValuesOf(rank, count);
      for (size_t i = 0; i < count; ++i) {
        expected[i] = rank == 0 ? values[i] : expected[i] + values[i];
      }
    }
    const auto statuses = OnAll(ranks, [&](Collective& collective) {
      std::vector<float> values = ValuesOf(collective.rank(), count);
      const absl::Status status = collective.Sum(absl::MakeSpan(values));
      EXPECT_EQ(values, expected) << "rank " << collective.rank();
      return status;
    });
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok());
  }
}

TEST_P(CollectiveTest, BroadcastsAndGathersTakeAnyLength) {
  auto ranks = Join(GetParam());
  for (const size_t length : {size_t{0}, size_t{5}, size_t{3000000}}) {
    const auto statuses = OnAll(ranks, [&](Collective& collective) {
      std::string bytes =
          collective.rank() == 0 ? std::string(length, 'x') : "other";
      const absl::Status status = collective.Broadcast(&bytes);
      EXPECT_EQ(bytes, std::string(length, 'x'));
      if (!status.ok()) return status;
      const auto gathered = collective.Gather(
          absl::StrCat(collective.rank(), std::string(length, 'y')));
      if (collective.rank() == 0 && gathered.ok()) {
        for (int rank = 0; rank < GetParam(); ++rank) {
          EXPECT_EQ(gathered->at(static_cast<size_t>(rank)),
                    absl::StrCat(rank, std::string(length, 'y')));
        }
      }
      return gathered.status();
    });
    for (const absl::Status& status : statuses) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveTest, testing::Values(1, 2, 4));

// There are more ranks than calls that a server usually takes.
TEST_F(CollectiveTest, AJobMayHaveManyRanks) {
  constexpr int kRanks = 135;
  auto ranks = Join(kRanks);
  const auto statuses = OnAll(ranks, [&](Collective& collective) {
    std::vector<float> values = {1.0F};
    const absl::Status status = collective.Sum(absl::MakeSpan(values));
    EXPECT_EQ(values[0], kRanks);
    return status;
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok());
}

TEST_F(CollectiveTest, ALostRankEndsTheOperationOnEveryOther) {
  auto ranks = Join(3);
  auto lost = std::move(ranks.back());
  ranks.pop_back();
  std::thread leaving([&] {
    absl::SleepFor(absl::Milliseconds(100));
    lost.reset();
  });
  const auto statuses = OnAll(ranks, [](Collective& collective) {
    std::vector<float> values(10, 1.0F);
    return collective.Sum(absl::MakeSpan(values));
  });
  leaving.join();
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("trainer rank"));
  }
}

TEST_F(CollectiveTest, WhatIsLostIsCalledWhatTheJobCallsIt) {
  called_ = "rollout rank";
  when_lost_ = "the worker ends";
  auto ranks = Join(2);
  ranks.pop_back();
  const absl::Status status = ranks[0]->AwaitAll();
  EXPECT_EQ(status,
            absl::AbortedError("rollout rank 1 is lost; the worker ends"));
}

TEST_F(CollectiveTest, ARankThatDoesNotComeInTimeEndsTheOperation) {
  timeout_ = absl::Milliseconds(300);
  auto ranks = Join(2);
  std::vector<float> values(10, 1.0F);
  EXPECT_FALSE(ranks[0]->HasLostRank());
  const absl::Status status = ranks[0]->Sum(absl::MakeSpan(values));
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_TRUE(ranks[0]->HasLostRank());
}

TEST_F(CollectiveTest, WhatTakesRanksDifferentTimesHasNoEndByTheClock) {
  timeout_ = absl::Milliseconds(300);
  auto ranks = Join(3);
  const auto statuses = OnAll(ranks, [](Collective& collective) {
    if (collective.rank() == 1) absl::SleepFor(absl::Seconds(1));
    return collective.AwaitAll();
  });
  for (const absl::Status& status : statuses)
    EXPECT_TRUE(status.ok()) << status;

  auto waiting =
      std::async(std::launch::async, [&] { return ranks[0]->AwaitAll(); });
  ranks[2].reset();
  const absl::Status lost = waiting.get();
  EXPECT_TRUE(absl::IsAborted(lost)) << lost;
}

// The loss is noticed while no operation runs.
TEST_F(CollectiveTest, EveryRankLearnsThatOneIsGone) {
  auto ranks = Join(3);
  for (const auto& rank : ranks) EXPECT_FALSE(rank->HasLostRank());
  ranks[2].reset();
  EXPECT_TRUE(Eventually([&] { return ranks[0]->HasLostRank(); }));
  EXPECT_FALSE(ranks[1]->HasLostRank()) << "rank 0 lives";
  ranks[0].reset();
  EXPECT_TRUE(Eventually([&] { return ranks[1]->HasLostRank(); }));
}

TEST_F(CollectiveTest, RanksAtDifferentOperationsAreNamed) {
  auto ranks = Join(2);
  const auto statuses = OnAll(ranks, [](Collective& collective) {
    std::vector<float> values(collective.rank() == 0 ? 10 : 11, 1.0F);
    return collective.Sum(absl::MakeSpan(values));
  });
  EXPECT_TRUE(absl::IsDataLoss(statuses[0])) << statuses[0];
  EXPECT_FALSE(statuses[1].ok());
}

TEST_F(CollectiveTest, ARankOfAnotherJobIsRefused) {
  RankOptions options{.rank = 0, .world_size = 2, .rendezvous = FreeAddress()};
  options.identity = "one";
  options.join_timeout = absl::Seconds(3);
  auto leader = std::async(std::launch::async,
                           [options] { return StartRankLeader(options); });
  options.rank = 1;
  options.identity = "another";
  const absl::Status status = JoinRankLeader(options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  const absl::Status waited = leader.get().status();
  EXPECT_TRUE(absl::IsUnavailable(waited));
  EXPECT_THAT(std::string(waited.message()), HasSubstr("trainer rank 1"));
  EXPECT_THAT(std::string(waited.message()),
              HasSubstr("refused: the base, the data, the configuration"));
}

TEST_F(CollectiveTest, ARankWithAnotherKindOfGpuIsRefusedWithBothNames) {
  const std::string h100 = "NVIDIA H100 (sm_90), driver 580.82.07, NCCL 2.28.9";
  for (const std::string& other :
       {std::string("NVIDIA A100 (sm_80), driver 580.82.07, NCCL 2.28.9"),
        std::string("NVIDIA H100 (sm_90), driver 590.10, NCCL 2.28.9"),
        std::string("NVIDIA H100 (sm_90), driver 580.82.07, NCCL 2.30.7"),
        std::string()}) {
    RankOptions options{.rank = 0,
                        .world_size = 2,
                        .rendezvous = FreeAddress(),
                        .identity = "same",
                        .device = h100};
    options.join_timeout = absl::Seconds(2);
    auto leader = std::async(std::launch::async,
                             [options] { return StartRankLeader(options); });
    options.rank = 1;
    options.device = other;
    const absl::Status status = JoinRankLeader(options).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    const std::string both = absl::StrCat("trainer rank 1 computes on ",
                                          other.empty() ? "the CPU" : other,
                                          ", but rank 0 on ",
                                          h100);
    EXPECT_THAT(std::string(status.message()), HasSubstr(both));
    EXPECT_THAT(std::string(leader.get().status().message()), HasSubstr(both));
  }
}

TEST_F(CollectiveTest, ARankThatComesBehindTheEndWaitsForAnotherBeginning) {
  RankOptions options{.rank = 1, .world_size = 2, .rendezvous = FreeAddress()};
  auto ended = EndedJob::Serve(options.rendezvous, nullptr);
  ASSERT_TRUE(ended.ok()) << ended.status();
  options.join_timeout = absl::ZeroDuration();
  int answers = 0;
  options.gives_up = [&] { return ++answers == 2; };
  EXPECT_TRUE(absl::IsCancelled(JoinRankLeader(options).status()));
  ended->reset();
  EXPECT_TRUE(absl::IsUnavailable(JoinRankLeader(options).status()))
      << "rank 0 is gone";
}

TEST_F(CollectiveTest, CancelEndsAWaitingRank) {
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    auto ranks = Join(2);
    std::string bytes;
    auto waiting = std::async(std::launch::async, [&]() -> absl::Status {
      return rank == 0 ? ranks[0]->Gather("").status()
                       : ranks[1]->Broadcast(&bytes);
    });
    ranks[rank]->Cancel();
    const absl::Status status = waiting.get();
    EXPECT_TRUE(absl::IsCancelled(status)) << rank << ": " << status;
  }
}

TEST_F(CollectiveTest, ARankThatLeftBeforeTheOthersCameMayComeAgain) {
  RankOptions options{.world_size = 3,
                      .rendezvous = FreeAddress(),
                      .identity = "same",
                      .join_timeout = absl::Seconds(30)};
  const auto join = [&](int rank) {
    RankOptions own = options;
    own.rank = rank;
    return std::async(std::launch::async, [own] {
      return own.rank == 0 ? StartRankLeader(own) : JoinRankLeader(own);
    });
  };
  auto leader = join(0);
  ASSERT_TRUE(join(1).get().ok());  // this rank leaves at once
  Joined again = join(1).get();
  ASSERT_TRUE(again.ok()) << again.status();
  std::vector<std::unique_ptr<Collective>> ranks(3);
  ranks[1] = *std::move(again);
  auto last = join(2).get();
  ASSERT_TRUE(last.ok()) << last.status();
  ranks[2] = *std::move(last);
  auto first = leader.get();
  ASSERT_TRUE(first.ok()) << first.status();
  ranks[0] = *std::move(first);
  const auto statuses = OnAll(ranks, [](Collective& collective) {
    std::vector<float> values = {1.0F};
    const absl::Status status = collective.Sum(absl::MakeSpan(values));
    EXPECT_EQ(values[0], 3.0F);
    return status;
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok());
}

TEST_F(CollectiveTest, ARankThatWaitsForOthersCanBeToldToStop) {
  for (const int rank : {0, 1}) {
    std::atomic<bool> stops = false;
    const RankOptions options{.rank = rank,
                              .world_size = 2,
                              .rendezvous = FreeAddress(),
                              .join_timeout = absl::Minutes(10),
                              .gives_up = [&] { return stops.load(); }};
    auto waiting = std::async(std::launch::async, [&]() -> absl::Status {
      return (rank == 0 ? StartRankLeader(options) : JoinRankLeader(options))
          .status();
    });
    EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(100)),
              std::future_status::timeout);
    stops = true;
    const absl::Status status = waiting.get();
    EXPECT_TRUE(absl::IsCancelled(status)) << rank << ": " << status;
  }
}

TEST(RankSliceTest, SlicesAreEvenAndCoverAll) {
  for (const auto& [groups, size] :
       {std::pair<size_t, size_t>{16, 4}, {5, 2}, {3, 3}}) {
    size_t next = 0;
    for (size_t rank = 0; rank < size; ++rank) {
      const RankSlice slice = SliceOf(rank, size, groups);
      EXPECT_EQ(slice.begin, next);
      EXPECT_LE(slice.end - slice.begin, (groups + size - 1) / size);
      next = slice.end;
    }
    EXPECT_EQ(next, groups);
  }
}

}  // namespace
}  // namespace dapd
