#include "common/tokenizer/unicode_text.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr char kBelow[] = "\u0316";  // a mark of combining class 220
constexpr char kAbove[] = "\u0301";  // a mark of class 230, which comes behind
                                     // class 220

std::string Repeat(const std::string& text, int times) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

// Sorting by insertion would take a minute.
TEST(ComposeNfcTest, ALongRunOfMarksIsPutIntoOrder) {
  constexpr int kPairs = 100000;
  const std::string run = Repeat(absl::StrCat(kAbove, kBelow), kPairs);
  EXPECT_EQ(ComposeNfc(absl::StrCat("xa", run, "e", kAbove)),
            absl::StrCat("x\u00e1",
                         Repeat(kBelow, kPairs),
                         Repeat(kAbove, kPairs - 1),
                         "\u00e9"));
}

TEST(ComposeNfcTest, AShortRunOfMarksIsPutIntoOrder) {
  EXPECT_EQ(ComposeNfc(absl::StrCat("a", kAbove, kBelow, kAbove)),
            absl::StrCat("\u00e1", kBelow, kAbove));
}

// U+0895 is from Unicode 16, with class 230.
TEST(ComposeNfcTest, AMarkThatTokenizersDoesNotKnowStaysWhereItIs) {
  for (const int pairs : {1, 100}) {
    const std::string run = Repeat(absl::StrCat("\u0895", kBelow), pairs);
    EXPECT_EQ(ComposeNfc(absl::StrCat("a", run)), absl::StrCat("a", run));
  }
}

}  // namespace
}  // namespace dapd
