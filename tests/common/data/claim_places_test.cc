#include "common/data/claim_places.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/small_tokenizer.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

class ClaimPlacesTest : public ::testing::Test {
 protected:
  void SetUp() override { tokenizer_ = LoadSmallTokenizer(); }

  // Returns the text behind each place, with _ where a sentence needs a space.
  std::vector<std::string> TextsBehind(const std::string& text) const {
    const std::vector<int32_t> ids = tokenizer_->Encode(text).value();
    std::vector<std::string> texts;
    for (const ClaimPlace& place : ClaimPlaces(*tokenizer_, ids)) {
      const std::vector<int32_t> rest(ids.begin() + place.tokens, ids.end());
      texts.push_back((place.needs_space ? "_" : "") +
                      tokenizer_->Decode(rest, false).value());
    }
    return texts;
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
};

// Behind a full stop the small tokenizer has a token of a space and letters, or
// a token that is the space alone.
TEST_F(ClaimPlacesTest, TheyAreTheBeginningAndTheBeginningsOfSentences) {
  EXPECT_THAT(TextsBehind("So. the end! the"),
              ElementsAre("So. the end! the", "_ the end! the", "_ the"));
  EXPECT_THAT(TextsBehind("So. It"), ElementsAre("So. It", "It"));
  EXPECT_THAT(TextsBehind("So?\n\nIt\nis"),
              ElementsAre("So?\n\nIt\nis", "It\nis", "is"));
}

TEST_F(ClaimPlacesTest, NothingBeginsInANumberNorBehindTheLastSentence) {
  EXPECT_THAT(TextsBehind("3.5 is it."), ElementsAre("3.5 is it."));
  EXPECT_THAT(TextsBehind("It.\n"), ElementsAre("It.\n"));
  EXPECT_THAT(TextsBehind("It. \n So"), ElementsAre("It. \n So", "So"));
}

TEST_F(ClaimPlacesTest, AnEmptyAnswerHasItsBeginning) {
  EXPECT_THAT(ClaimPlaces(*tokenizer_, {}), ElementsAre(ClaimPlace{}));
}

// An id of a padding row of the embedding stands for no text.
TEST_F(ClaimPlacesTest, AnUnknownTokenIsAnEmptyText) {
  const std::vector<int32_t> ids = {'A', '.', 9999, ' ', 'B'};
  EXPECT_THAT(ClaimPlaces(*tokenizer_, ids),
              ElementsAre(ClaimPlace{}, ClaimPlace{4, false}));
}

}  // namespace
}  // namespace dapd
