#include "services/trainer/record/shown_answer.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/base/utf8.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Json = nlohmann::ordered_json;

TEST(SpreadPlacesTest, AreFarApartAndNeverMoreThanThereAre) {
  EXPECT_THAT(SpreadPlaces(32, 4), ElementsAre(0, 8, 16, 24));
  EXPECT_THAT(SpreadPlaces(6, 4), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(SpreadPlaces(3, 4), ElementsAre(0, 1, 2));
  EXPECT_THAT(SpreadPlaces(0, 4), ElementsAre());
}

TEST(AnswerGradeTest, SaysWhyAnAnswerIsNotRight) {
  const auto grade = [](bool expected, bool box, bool correct, FinishReason r) {
    return std::string(NameOf(GradeOf(expected, box, correct, r)));
  };
  EXPECT_EQ(grade(true, true, true, FinishReason::kEos), "right");
  EXPECT_EQ(grade(true, true, true, FinishReason::kLength), "right");
  EXPECT_EQ(grade(true, true, false, FinishReason::kLength), "wrong");
  EXPECT_EQ(grade(true, false, false, FinishReason::kEos), "no_answer");
  EXPECT_EQ(grade(true, false, false, FinishReason::kLength), "cut");
  EXPECT_EQ(grade(false, true, false, FinishReason::kEos), "ungraded");
}

TEST(CutMiddleTest, WhatIsShortEnoughStaysAsItIs) {
  EXPECT_EQ(CutMiddle("", 256), "");
  const std::string text(256, 'x');
  EXPECT_EQ(CutMiddle(text, 256), text);
}

TEST(CutMiddleTest, ALongTextKeepsItsBeginningAndItsEndAndCountsTheRest) {
  std::string text(100'000, 'x');
  text.replace(0, 5, "begin");
  text.replace(text.size() - 3, 3, "end");
  const std::string cut = CutMiddle(text, 4096);
  EXPECT_LE(cut.size(), 4096u);
  EXPECT_GT(cut.size(), 4000u);
  EXPECT_THAT(cut, StartsWith("begin"));
  EXPECT_THAT(cut, EndsWith("end"));
  EXPECT_THAT(cut, HasSubstr("\n[... 95984 characters left out ...]\n"));
  EXPECT_EQ(CutMiddle(cut, 4096), cut);
}

TEST(CutMiddleTest, NoCharacterIsCutInTwo) {
  for (const char* character :
       {"\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80"}) {
    for (size_t shift = 0; shift < 4; ++shift) {
      std::string text(shift, 'x');
      while (text.size() < 10'000) text += character;
      const std::string cut = CutMiddle(text, 512);
      EXPECT_TRUE(IsUtf8(cut));
      EXPECT_LE(cut.size(), 512u);
      EXPECT_EQ(CutMiddle(cut, 512), cut);
    }
  }
}

TEST(CutMiddleTest, BytesOfNoCharacterAreReplacedBeforeTheyAreCounted) {
  EXPECT_EQ(CutMiddle("a\xff", 256), "a\xef\xbf\xbd");
  const std::string cut = CutMiddle(std::string(100'000, '\x80'), 4096);
  EXPECT_TRUE(IsUtf8(cut));
  EXPECT_LE(cut.size(), 4096u);
  EXPECT_EQ(CutMiddle(cut, 4096), cut);
}

ShownAnswer Hostile() {
  return {.place = 3,
          .id = "<b>&\x1b[2J",
          .problem = std::string(5'000, 'p'),
          .text = absl::StrCat("</script><script>alert(1)</script>\xff",
                               std::string("\0\x1b[2J\r\n", 7),
                               std::string(100'000, '"')),
          .expected = "\\frac{1}{2}",
          .extracted =
              "\xe2\x80\xae"
              "21",
          .grade = AnswerGrade::kCut,
          .tokens = 100'000};
}

TEST(ShownAnswersTest, AreReadBackAsTheyWereCut) {
  const std::vector<ShownAnswer> answers = {CutToShow(Hostile()), {}};
  const std::string text = ToJson(answers).dump();  // throws if ill-formed
  EXPECT_LT(text.size(), 32'768u);
  const auto read = ParseShownAnswers(Json::parse(text), "file");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, answers);
  EXPECT_EQ(answers[0].expected, "\\frac{1}{2}");
}

TEST(ShownAnswersTest, NothingOfThemIsTooLongToShow) {
  const std::string text(100'000, 'x');
  const ShownAnswer cut = CutToShow({.id = text,
                                     .problem = text,
                                     .text = text,
                                     .expected = text,
                                     .extracted = text});
  EXPECT_LE(cut.id.size(), kMaxShownResult);
  EXPECT_LE(cut.problem.size(), kMaxShownProblem);
  EXPECT_LE(cut.text.size(), kMaxShownText);
  EXPECT_LE(cut.expected.size(), kMaxShownResult);
  EXPECT_LE(cut.extracted.size(), kMaxShownResult);
}

TEST(ShownAnswersTest, AreCutWhoeverWroteThem) {
  Json json = ToJson({CutToShow(Hostile())});
  json[0]["text"] = std::string(100'000, 'x');
  const auto read = ParseShownAnswers(json, "file");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_LE(read->at(0).text.size(), kMaxShownText);
}

TEST(ShownAnswersTest, WhatIsNoneIsNamed) {
  const Json good = ToJson({CutToShow(Hostile())});
  const auto problem = [](const Json& json) {
    const absl::Status status = ParseShownAnswers(json, "the file").status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(problem({{"a", 1}}), HasSubstr("the file holds no list"));
  EXPECT_THAT(problem(Json::array({1})),
              HasSubstr("the file holds no answers"));
  for (const auto& [key, value] : good[0].items()) {
    Json bad = good;
    bad[0].erase(key);
    EXPECT_THAT(problem(bad), HasSubstr("the file"));
    bad[0][key] = Json::array();
    EXPECT_THAT(problem(bad), HasSubstr("the file"));
  }
  Json bad = good;
  bad[0]["grade"] = "splendid";
  EXPECT_THAT(problem(bad), HasSubstr("'splendid' is not a grade"));
}

TEST(PairAnswersTest, AProblemsAnswersStandSideBySide) {
  const auto answer = [](int64_t place, const std::string& id) {
    return ShownAnswer{.place = place, .id = id};
  };
  const std::vector<AnswerPair> pairs = PairAnswers(
      {answer(0, "a"), answer(5, "b")}, {answer(5, "b"), answer(9, "c")});
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].before->id, "a");
  EXPECT_FALSE(pairs[0].after.has_value());
  EXPECT_EQ(pairs[1].before->id, "b");
  EXPECT_EQ(pairs[1].after->id, "b");
  EXPECT_FALSE(pairs[2].before.has_value());
  EXPECT_EQ(pairs[2].after->id, "c");
}

TEST(PairAnswersTest, ProblemsOfAnotherFileAreNotTakenForTheSame) {
  const std::vector<AnswerPair> pairs = PairAnswers(
      {{.id = "0", .problem = "1 + 1?"}}, {{.id = "0", .problem = "2 + 2?"}});
  EXPECT_EQ(pairs.size(), 2u);
}

}  // namespace
}  // namespace dapd
