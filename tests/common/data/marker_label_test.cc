#include "common/data/marker_label.h"

#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(MarkerLabelTest, NamesTheText) {
  EXPECT_EQ(MarkerLabel(" = "), "with \" = \"");
}

TEST(MarkerLabelTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(MarkerLabel("a\n\x1b[2J"), "with \"a\\n\\x1b[2J\"");
}

TEST(MarkerLabelTest, OfALongOneWholeCharactersAreKept) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "\u00e9";
  EXPECT_EQ(MarkerLabel(text), "with \"" + text.substr(0, 48) + "...\"");
  EXPECT_EQ(MarkerLabel(text.substr(0, 48)),
            "with \"" + text.substr(0, 48) + "\"");
}

}  // namespace
}  // namespace dapd
