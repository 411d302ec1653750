#include "services/cli/terminal/text_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(AlignColumnsTest, ColumnsAreAsWideAsTheirWidestCell) {
  EXPECT_THAT(
      AlignColumns({{"run", "loss", "after"}, {"a", "0.25", "-"}, {"longer"}}),
      ElementsAre("run     loss  after", "a       0.25  -", "longer"));
  EXPECT_THAT(AlignColumns({}), IsEmpty());
  EXPECT_THAT(AlignColumns({{""}, {}}), ElementsAre("", ""));
}

TEST(AlignColumnsTest, WidthIsWhatATerminalShows) {
  EXPECT_THAT(
      AlignColumns({{"\u5b9f\u9a13", "1"}, {"e\u0301", "2"}, {"abcd", "3"}}),
      ElementsAre("\u5b9f\u9a13  1", "e\u0301     2", "abcd  3"));
}

}  // namespace
}  // namespace dapd
