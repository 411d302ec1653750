#include "services/teacher/prefix_desk.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/fake_scorer.h"

namespace dapd {
namespace {

// Has a desk before a scorer with chunks of 4 tokens.
class PrefixDeskTest : public ::testing::Test {
 protected:
  void Tell(uint64_t id,
            int64_t first,
            int64_t count,
            WeightSet weights = WeightSet::kBase) {
    PrefixUpdate update;
    update.request_id = id;
    update.weights = weights;
    update.views = {{ViewName::kNoneRollout,
                     first,
                     std::vector<int32_t>(static_cast<size_t>(count), 7)}};
    desk_.Update(this, update);
  }
  // Computes until nothing is left to do; returns the number of tokens.
  int64_t AdvanceAll() {
    int64_t tokens = 0;
    while (desk_.has_work()) tokens += desk_.Advance(scorer_).value();
    return tokens;
  }

  FakeScorerControl control_;
  FakeScorer scorer_{&control_};
  PrefixDesk desk_;
};

TEST_F(PrefixDeskTest, OnlyWholeChunksAreComputedAsTokensCome) {
  EXPECT_FALSE(desk_.has_work());
  Tell(1, 0, 3);
  EXPECT_EQ(AdvanceAll(), 0);
  Tell(1, 3, 6);
  EXPECT_EQ(AdvanceAll(), 8);
  Tell(1, 9, 2);
  EXPECT_EQ(AdvanceAll(), 0);
  Tell(1, 11, 1);
  EXPECT_EQ(AdvanceAll(), 4);
}

TEST_F(PrefixDeskTest, ARequestIsClosedWithWhatWasComputedForIt) {
  Tell(1, 0, 8);
  AdvanceAll();
  const AheadWork work = desk_.Close(this, 1);
  EXPECT_GT(work.seconds, 0);
  ASSERT_FALSE(work.spans.empty());
  double spanned = 0.0;
  absl::Time last = absl::InfinitePast();
  for (const TimeSpan& span : work.spans) {
    EXPECT_GE(span.begin, last);
    last = span.end;
    spanned += absl::ToDoubleSeconds(span.end - span.begin);
  }
  EXPECT_GE(spanned, work.seconds - 1e-9);
  ASSERT_EQ(work.held.size(), 1U);
  EXPECT_EQ(work.held[0].tokens, 8);
  EXPECT_EQ(desk_.open(), 0U);
  EXPECT_TRUE(desk_.Close(this, 1).held.empty());
}

TEST_F(PrefixDeskTest, TheLowestRequestComesFirst) {
  Tell(9, 0, 8);
  Tell(2, 0, 8, WeightSet::kSnapshot);
  ASSERT_TRUE(desk_.Advance(scorer_).ok());
  ASSERT_TRUE(desk_.Advance(scorer_).ok());
  EXPECT_EQ(control_.adapter_ahead, 8);
  EXPECT_EQ(control_.base_ahead, 0);
}

TEST_F(PrefixDeskTest, AViewThatDoesNotContinueClosesItsRequest) {
  Tell(1, 0, 8);
  Tell(1, 9, 3);
  EXPECT_EQ(desk_.open(), 0U);
  EXPECT_EQ(AdvanceAll(), 0);
}

// Otherwise the cache would give a wrong prefix to requests for the first
// weights.
TEST_F(PrefixDeskTest, NothingGoesOnWithOtherWeights) {
  Tell(1, 0, 8);
  AdvanceAll();
  Tell(1, 8, 4, WeightSet::kSnapshot);
  EXPECT_EQ(desk_.open(), 0U);
  Tell(1, 0, 8);
  AdvanceAll();
  Tell(1, 0, 12, WeightSet::kSnapshot);
  EXPECT_EQ(AdvanceAll(), 12);
  EXPECT_EQ(control_.adapter_ahead, 12);
}

TEST_F(PrefixDeskTest, AViewMayStartOver) {
  Tell(1, 0, 8);
  AdvanceAll();
  Tell(1, 0, 4);
  EXPECT_EQ(AdvanceAll(), 4);
}

TEST_F(PrefixDeskTest, OfSoManyRequestsSomethingIsKnownAndOfNoMore) {
  for (uint64_t id = 0; id <= kMaxOpenPrefixes; ++id) Tell(id, 0, 1);
  EXPECT_EQ(desk_.open(), kMaxOpenPrefixes);
  Tell(0, 1, 3);
  EXPECT_EQ(AdvanceAll(), 4) << "those that are open go on";
  desk_.Close(this, 0);
  Tell(kMaxOpenPrefixes, 0, 4);
  EXPECT_EQ(AdvanceAll(), 4);
}

TEST_F(PrefixDeskTest, NoViewsWithdrawARequest) {
  Tell(1, 0, 8);
  PrefixUpdate update;
  update.request_id = 1;
  desk_.Update(this, update);
  EXPECT_EQ(desk_.open(), 0U);
}

TEST_F(PrefixDeskTest, AStreamTakesItsOwnAlone) {
  Tell(1, 0, 8);
  desk_.CloseStream(&control_);
  EXPECT_EQ(desk_.open(), 1U);
  desk_.CloseStream(this);
  EXPECT_EQ(desk_.open(), 0U);
}

TEST_F(PrefixDeskTest, ANewAdapterClosesWhatTheOldOneOfItsSetComputed) {
  Tell(1, 0, 8, WeightSet::kSnapshot);
  Tell(2, 0, 8);
  Tell(3, 0, 8, WeightSet::kEma);
  desk_.CloseSet(WeightSet::kSnapshot);
  EXPECT_EQ(desk_.open(), 2U);
  EXPECT_EQ(AdvanceAll(), 16);
}

TEST_F(PrefixDeskTest, WithoutMemoryItWaitsForAClose) {
  control_.chunks_left = 1;
  Tell(1, 0, 8);
  Tell(2, 0, 8);
  EXPECT_EQ(AdvanceAll(), 4);
  EXPECT_FALSE(desk_.has_work());
  control_.chunks_left = 2;
  desk_.Close(this, 1);
  EXPECT_EQ(AdvanceAll(), 8);
}

TEST_F(PrefixDeskTest, AFailedRequestIsClosed) {
  Tell(1, 0, 8);
  control_.fail = true;
  EXPECT_FALSE(desk_.Advance(scorer_).ok());
  EXPECT_EQ(desk_.open(), 0U);
  EXPECT_FALSE(desk_.has_work());
}

}  // namespace
}  // namespace dapd
