#include "common/generation/decode_request.h"

#include <array>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/generation/decode_request_message.h"

namespace dapd {
namespace {

TEST(FinishReasonTest, NamesAreThoseOfTheFilesAndReadBack) {
  EXPECT_EQ(NameOf(FinishReason::kEos), "eos");
  EXPECT_EQ(NameOf(FinishReason::kLength), "length");
  for (const FinishReason reason :
       {FinishReason::kEos, FinishReason::kLength}) {
    EXPECT_EQ(FinishReasonOf(NameOf(reason)), reason);
  }
}

TEST(FinishReasonTest, NoOtherNameIsAReason) {
  for (const char* name : {"", "stop", "EOS", "length "}) {
    EXPECT_EQ(FinishReasonOf(name), std::nullopt) << name;
  }
}

TEST(FinishReasonTest, IsReadFromItsMessage) {
  for (const FinishReason reason :
       {FinishReason::kEos, FinishReason::kLength}) {
    EXPECT_EQ(ReadFinishReason(WrittenReason(reason)).value(), reason);
  }
  for (const int unknown : {0, 3}) {
    const auto read =
        ReadFinishReason(static_cast<v1::GenerationFinished::Reason>(unknown));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(WithoutEndTokenTest, OnlyAnAnswerThatEndedItselfHasOne) {
  const std::array<int32_t, 3> ids = {7, 8, 2};
  EXPECT_THAT(WithoutEndToken(ids, FinishReason::kEos),
              testing::ElementsAre(7, 8));
  EXPECT_THAT(WithoutEndToken(ids, FinishReason::kLength),
              testing::ElementsAre(7, 8, 2));
  EXPECT_THAT(WithoutEndToken(ids, FinishReason::kNone),
              testing::ElementsAre(7, 8, 2));
}

TEST(WithoutEndTokenTest, OfNoTokensThereIsNothingToLeaveOut) {
  EXPECT_TRUE(WithoutEndToken({}, FinishReason::kEos).empty());
}

TEST(DecodeRequestTest, TheLongestOutcomeIsPromptAndAnswer) {
  DecodeRequest request;
  request.prompt_ids = {1, 2, 3};
  request.sampling.max_new_tokens = 5;
  EXPECT_EQ(request.MaxTokens(), 8);
}

}  // namespace
}  // namespace dapd
