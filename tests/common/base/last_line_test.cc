#include "common/base/last_line.h"

#include <string>

#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

std::string LastLine(const std::string& text, uint64_t max_bytes = 1 << 20) {
  const std::string path = TempPath("lines");
  EXPECT_TRUE(WriteFileAtomically(path, text).ok());
  const auto line = ReadLastLine(path, max_bytes);
  return line.ok() ? *line : "error";
}

TEST(ReadLastLineTest, TheLastWholeLineIsRead) {
  EXPECT_EQ(LastLine(""), "");
  EXPECT_EQ(LastLine("half"), "");
  EXPECT_EQ(LastLine("\n"), "");
  EXPECT_EQ(LastLine("one\n"), "one");
  EXPECT_EQ(LastLine("one\ntwo\n"), "two");
  EXPECT_EQ(LastLine("one\ntwo\nhalf"), "two");
  EXPECT_EQ(LastLine("one\n\n"), "");
}

TEST(ReadLastLineTest, NoMoreIsReadThanAllowed) {
  EXPECT_EQ(LastLine("0123456789\ntwo\n", 6), "two");
  EXPECT_EQ(LastLine("one\n0123456789\n", 6), "error");
  EXPECT_EQ(LastLine("one\n0123456789", 6), "error");
  EXPECT_TRUE(
      absl::IsNotFound(ReadLastLine(TempPath("missing"), 1 << 20).status()));
}

}  // namespace
}  // namespace dapd
