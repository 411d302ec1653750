#include "common/data/repetition.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

std::vector<int32_t> Counting(int from, int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), from);
  return ids;
}

// Returns `before` tokens, then `copies` copies of a block of the tokens 1000,
// 1001, ...
std::vector<int32_t> Loop(int before, int block, int copies) {
  std::vector<int32_t> ids = Counting(0, before);
  for (int i = 0; i < copies; ++i) {
    const std::vector<int32_t> copy = Counting(1000, block);
    ids.insert(ids.end(), copy.begin(), copy.end());
  }
  return ids;
}

TEST(EndsInRepetitionTest, FourCopiesOverEnoughTokensAreALoop) {
  EXPECT_TRUE(EndsInRepetition(Loop(100, 20, 4)));
  EXPECT_TRUE(EndsInRepetition(Loop(0, 512, 4)));
  EXPECT_TRUE(EndsInRepetition(Loop(3, 1, 64)));
}

TEST(EndsInRepetitionTest, FewCopiesOrFewTokensAreNot) {
  EXPECT_FALSE(EndsInRepetition(Loop(100, 20, 3)));
  EXPECT_FALSE(EndsInRepetition(Loop(100, 5, 8)));  // 40 tokens
  EXPECT_FALSE(EndsInRepetition(Loop(0, 513, 4)));
  EXPECT_FALSE(EndsInRepetition(Counting(0, 5000)));
  EXPECT_FALSE(EndsInRepetition({}));
}

TEST(EndsInRepetitionTest, ABrokenOffLastCopyIsPartOfTheLoop) {
  std::vector<int32_t> ids = Loop(50, 30, 4);
  ids.insert(ids.end(), {1000, 1001, 1002});
  EXPECT_TRUE(EndsInRepetition(ids));
}

TEST(EndsInRepetitionTest, ALoopThatTheAnswerLeftIsNone) {
  std::vector<int32_t> ids = Loop(50, 30, 10);
  ids.insert(ids.end(), {7, 8, 9});
  EXPECT_FALSE(EndsInRepetition(ids));
}

}  // namespace
}  // namespace dapd
