#include "services/rollout/generation_outbox.h"

#include <functional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/generation/decode_request_message.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kNoWait = absl::ZeroDuration();
constexpr absl::Duration kLong = absl::Seconds(20);

TEST(GenerationOutboxTest, TokensNotYetTakenGrowIntoOneMessage) {
  GenerationOutbox outbox;
  ASSERT_TRUE(outbox.Open(1));
  ASSERT_TRUE(outbox.Open(2));
  outbox.AddToken(1, 0, 10, -1.0F);
  outbox.AddToken(2, 0, 20, -2.0F);
  outbox.AddToken(1, 1, 11, -3.0F);
  const auto first = outbox.PopFor(kNoWait);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->request_id(), 1U);
  EXPECT_THAT(first->tokens().ids(), ElementsAre(10, 11));
  EXPECT_THAT(first->tokens().logprobs(), ElementsAre(-1.0F, -3.0F));
  EXPECT_THAT(outbox.PopFor(kNoWait)->tokens().ids(), ElementsAre(20));
  outbox.AddToken(1, 2, 12, -4.0F);
  EXPECT_EQ(outbox.PopFor(kNoWait)->tokens().first_index(), 2U);
}

TEST(GenerationOutboxTest, TheEndOfARequestFollowsItsTokens) {
  GenerationOutbox outbox;
  outbox.Open(1);
  outbox.AddToken(1, 0, 10, -1.0F);
  outbox.Finish(
      1,
      FinishReason::kEos,
      1,
      {true, 4, "digest"},
      {},
      {.recomputed_tokens = 5, .swaps = 2, .swapped_bytes = int64_t{9} << 40});
  EXPECT_TRUE(outbox.PopFor(kNoWait)->has_tokens());
  const auto end = outbox.PopFor(kNoWait);
  ASSERT_TRUE(end->has_finished());
  EXPECT_EQ(end->finished().reason(), v1::GenerationFinished::REASON_EOS);
  EXPECT_EQ(end->finished().num_tokens(), 1U);
  EXPECT_EQ(end->finished().policy_version(), 4);
  EXPECT_EQ(end->finished().adapter_digest(), "digest");
  const MemoryCost cost = ReadCost(end->finished().memory_cost());
  EXPECT_EQ(cost.recomputed_tokens, 5);
  EXPECT_EQ(cost.swaps, 2);
  EXPECT_EQ(cost.swapped_bytes, int64_t{9} << 40);
}

TEST(GenerationOutboxTest, AnOpenIdCannotBeOpenedAgain) {
  GenerationOutbox outbox;
  EXPECT_TRUE(outbox.Open(1));
  EXPECT_FALSE(outbox.Open(1));
  outbox.Fail(1, absl::InternalError("x"));
  EXPECT_TRUE(outbox.Open(1));
}

TEST(GenerationOutboxTest, TokensOfAnIdThatIsOpenedAgainFollowItsFirstEnd) {
  GenerationOutbox outbox;
  outbox.Open(1);
  outbox.AddToken(1, 0, 10, -1.0F);
  outbox.Fail(1, absl::InternalError("x"));
  outbox.Open(1);
  outbox.AddToken(1, 0, 11, -1.0F);
  EXPECT_THAT(outbox.PopFor(kNoWait)->tokens().ids(), ElementsAre(10));
  EXPECT_EQ(outbox.PopFor(kNoWait)->failed().message(), "x");
  EXPECT_THAT(outbox.PopFor(kNoWait)->tokens().ids(), ElementsAre(11));
}

TEST(GenerationOutboxTest, MessagesOfARequestThatIsNotOpenAreDropped) {
  GenerationOutbox outbox;
  outbox.AddToken(1, 0, 10, -1.0F);
  outbox.Finish(1, FinishReason::kEos, 1, {});
  outbox.Fail(1, absl::InternalError("x"));
  EXPECT_FALSE(outbox.PopFor(kNoWait).has_value());
}

// As a rule, a message comes while the reader waits for it.
TEST(GenerationOutboxTest, WhoWaitsIsWokenByEachMessage) {
  GenerationOutbox outbox;
  for (const auto& add : std::vector<std::function<void()>>{
           [&] { outbox.AddToken(1, 0, 10, -1.0F); },
           [&] { outbox.Finish(1, FinishReason::kEos, 1, {}); },
           [&] { outbox.Fail(1, absl::InternalError("x")); }}) {
    outbox.Open(1);
    std::jthread adder([&] {
      absl::SleepFor(absl::Milliseconds(20));
      add();
    });
    EXPECT_TRUE(outbox.PopFor(absl::Hours(1)).has_value());
  }
}

TEST(GenerationOutboxTest, ClosingWaitsForTheLastAnswer) {
  GenerationOutbox outbox;
  EXPECT_FALSE(outbox.done()) << "requests may come";
  outbox.Open(1);
  outbox.CloseWhenAnswered();
  EXPECT_FALSE(outbox.done());
  std::jthread answerer([&] { outbox.Fail(1, absl::InternalError("x")); });
  EXPECT_TRUE(outbox.PopFor(kLong).has_value());
  EXPECT_TRUE(outbox.done());
  EXPECT_FALSE(outbox.PopFor(kLong).has_value());
}

TEST(GenerationOutboxTest, AClientThatTakesNothingHasNoRoomForMore) {
  GenerationOutbox outbox;
  for (uint64_t id = 0; id < GenerationOutbox::kMaxUntaken; ++id) {
    ASSERT_TRUE(outbox.HasRoomWithin(kNoWait));
    ASSERT_TRUE(outbox.Open(id));
    outbox.Fail(id, absl::InvalidArgumentError("x"));
  }
  EXPECT_FALSE(outbox.HasRoomWithin(kNoWait));
  {
    std::jthread taker([&] { outbox.PopFor(kLong); });
    EXPECT_TRUE(outbox.HasRoomWithin(kLong));
  }
  ASSERT_TRUE(outbox.Open(1));
  outbox.Fail(1, absl::InvalidArgumentError("x"));
  EXPECT_FALSE(outbox.HasRoomWithin(kNoWait));
  std::jthread abandoner([&] { outbox.Abandon(); });
  EXPECT_TRUE(outbox.HasRoomWithin(kLong));
}

TEST(GenerationOutboxTest, AbandoningEndsAWaitAndDropsEverything) {
  GenerationOutbox outbox;
  outbox.Open(1);
  std::jthread abandoner([&] { outbox.Abandon(); });
  EXPECT_FALSE(outbox.PopFor(kLong).has_value());
  EXPECT_TRUE(outbox.done());
  outbox.AddToken(1, 0, 10, -1.0F);
  EXPECT_FALSE(outbox.PopFor(kNoWait).has_value());
}

}  // namespace
}  // namespace dapd
