#include "services/cli/serve/answer_text.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class AnswerTextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = TempPath("tokenizer");
    WriteSmallTokenizer(folder);
    auto tokenizer = Tokenizer::Load(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  std::vector<int32_t> Ids(const std::string& text) const {
    return tokenizer_->Encode(text).value();
  }

  // Appends the tokens one by one, and returns the parts of the text.
  std::vector<std::string> PartsOf(AnswerText& text,
                                   const std::vector<int32_t>& ids) const {
    std::vector<std::string> parts;
    for (const int32_t id : ids) {
      EXPECT_TRUE(text.Append({id}).ok());
      parts.push_back(text.Take());
    }
    EXPECT_TRUE(text.Finish().ok());
    parts.push_back(text.Take());
    return parts;
  }

  static std::string Joined(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += part;
    return text;
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(AnswerTextTest, GivesTheTextOfAnyTokens) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int32_t> any(0, kSmallEndId);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> ids(40);
    for (int32_t& id : ids) id = any(random);
    AnswerText text(*tokenizer_, {});
    EXPECT_EQ(Joined(PartsOf(text, ids)),
              tokenizer_->Decode(ids, /*skip_special_tokens=*/true).value());
  }
}

TEST_F(AnswerTextTest, HoldsACharacterBackUntilItIsWhole) {
  AnswerText text(*tokenizer_, {});
  // Each byte of these characters is a token.
  EXPECT_EQ(PartsOf(text, Ids("é€")),
            (std::vector<std::string>{"", "é", "", "", "€", ""}));
}

TEST_F(AnswerTextTest, EndsBeforeTheFirstStop) {
  AnswerText text(*tokenizer_, {"xyz", "END"});
  EXPECT_EQ(Joined(PartsOf(text, Ids("one xy END two xyz"))), "one xy ");
  EXPECT_TRUE(text.stopped());
}

TEST_F(AnswerTextTest, ShowsNoBeginningOfAStop) {
  AnswerText text(*tokenizer_, {"abab"});
  EXPECT_EQ(PartsOf(text, Ids("xabaxab")),
            (std::vector<std::string>{"x", "", "", "", "abax", "", "", "ab"}));
  EXPECT_FALSE(text.stopped());
}

TEST_F(AnswerTextTest, RefusesAnIdOutsideTheVocabulary) {
  AnswerText text(*tokenizer_, {});
  EXPECT_EQ(text.Append({100'000}).code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace dapd
