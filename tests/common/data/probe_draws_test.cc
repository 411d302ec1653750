#include "common/data/probe_draws.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(DrawProblemsTest, RowsOfOneProblemStayTogetherAndNoneIsDrawnTwice) {
  const std::vector<std::string> texts = {"a", "b", "a", "c", "b", "d"};
  const auto all = DrawProblems(texts, 100, 7);
  ASSERT_EQ(all.size(), 4u);
  std::set<size_t> rows;
  for (const std::vector<size_t>& problem : all) {
    EXPECT_TRUE(std::is_sorted(problem.begin(), problem.end()));
    for (const size_t row : problem) {
      EXPECT_EQ(texts[row], texts[problem.front()]);
      EXPECT_TRUE(rows.insert(row).second);
    }
  }
  EXPECT_EQ(rows.size(), texts.size());
}

TEST(DrawProblemsTest, FewerAreTheFirstOfTheSameDraw) {
  const std::vector<std::string> texts = {"a", "b", "c", "d", "e", "f"};
  const auto all = DrawProblems(texts, 6, 7);
  const auto few = DrawProblems(texts, 2, 7);
  ASSERT_EQ(few.size(), 2u);
  EXPECT_EQ(few[0], all[0]);
  EXPECT_EQ(few[1], all[1]);
  EXPECT_NE(DrawProblems(texts, 6, 8), all);
  EXPECT_TRUE(DrawProblems({}, 3, 7).empty());
}

TEST(InteriorPositionsTest, LeavesOutBothEndsAndWhatATermSkips) {
  const PositionRange interior = InteriorPositions(10, 0);
  EXPECT_EQ(interior.begin, 1);
  EXPECT_EQ(interior.end, 9);
  EXPECT_EQ(InteriorPositions(10, 3).begin, 3);
  const PositionRange two = InteriorPositions(2, 0);
  EXPECT_LE(two.end, two.begin);
  const PositionRange none = InteriorPositions(0, 0);
  EXPECT_LE(none.end, none.begin);
}

TEST(DrawPositionsTest, DrawsWithoutReplacementInOrderFromAllAnswers) {
  const std::vector<PositionRange> answers = {{1, 9}, {1, -1}, {3, 20}};
  const auto all = DrawPositions(answers, 1000, 7, 0);
  EXPECT_EQ(all.size(), 8u + 17u);
  const auto some = DrawPositions(answers, 12, 7, 0);
  ASSERT_EQ(some.size(), 12u);
  std::set<std::pair<size_t, int64_t>> places;
  for (const DrawnPosition& drawn : some) {
    EXPECT_GE(drawn.position, answers[drawn.answer].begin);
    EXPECT_LT(drawn.position, answers[drawn.answer].end);
    // The positions are in order, and therefore not repeated.
    EXPECT_TRUE(places.empty() ||
                *places.rbegin() < std::pair(drawn.answer, drawn.position));
    places.emplace(drawn.answer, drawn.position);
  }
  EXPECT_EQ(DrawPositions(answers, 12, 7, 0), some);
  EXPECT_NE(DrawPositions(answers, 12, 7, 1), some);
  EXPECT_NE(DrawPositions(answers, 12, 8, 0), some);
  EXPECT_TRUE(DrawPositions({{1, 1}}, 12, 7, 0).empty());
}

}  // namespace
}  // namespace dapd
