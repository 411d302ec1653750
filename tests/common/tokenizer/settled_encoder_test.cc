#include "common/tokenizer/settled_encoder.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

#include "tests/fakes/small_tokenizer.h"

namespace dapd {
namespace {

class SettledEncoderTest : public ::testing::Test {
 protected:
  void SetUp() override { tokenizer_ = LoadSmallTokenizer(); }

  // After each byte, the tokens must be a prefix of the tokens of the whole
  // text.
  void ExpectPrefixes(const std::string& text, size_t at_least) {
    const std::vector<int32_t> whole = tokenizer_->Encode(text).value();
    SettledEncoder encoder(*tokenizer_);
    for (const char byte : text) {
      ASSERT_TRUE(encoder.Append({&byte, 1}).ok());
      const std::vector<int32_t>& ids = encoder.ids();
      ASSERT_LE(ids.size(), whole.size());
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), whole.begin())) << text;
    }
    EXPECT_GE(encoder.ids().size(), at_least);
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(SettledEncoderTest, TokensDoNotDependOnWhatFollows) {
  ExpectPrefixes("the 123 the  12 the\n\nthe 12", 10);
  ExpectPrefixes("1 + 2 = 3; then 12 + 3\n  indented \n the end.", 20);
  ExpectPrefixes("no-space", 0);
  ExpectPrefixes("", 0);
}

TEST_F(SettledEncoderTest, WhatHasNoCutYetIsLeftOut) {
  SettledEncoder encoder(*tokenizer_);
  ASSERT_TRUE(encoder.Append("the").ok());
  EXPECT_TRUE(encoder.ids().empty());
  ASSERT_TRUE(encoder.Append(" 12").ok());
  EXPECT_EQ(encoder.ids(), tokenizer_->Encode("the").value());
  ASSERT_TRUE(encoder.Append("3").ok());
  EXPECT_EQ(encoder.ids(), tokenizer_->Encode("the").value());
  ASSERT_TRUE(encoder.Append("\nthe").ok());
  EXPECT_EQ(encoder.ids(), tokenizer_->Encode("the 123\n").value());
}

}  // namespace
}  // namespace dapd
