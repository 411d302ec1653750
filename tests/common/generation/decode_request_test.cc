#include "common/generation/decode_request.h"

#include "gtest/gtest.h"

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

TEST(DecodeRequestTest, TheLongestOutcomeIsPromptAndAnswer) {
  DecodeRequest request;
  request.prompt_ids = {1, 2, 3};
  request.sampling.max_new_tokens = 5;
  EXPECT_EQ(request.MaxTokens(), 8);
}

}  // namespace
}  // namespace dapd
