#include "common/base/log.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

#include "common/base/utf8.h"

namespace dapd {
namespace {

std::string Logged(const std::string& message) {
  testing::internal::CaptureStderr();
  LogWarning(message);
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, AMessageIsOneLineWhateverItQuotes) {
  const std::string line =
      Logged("row 'a\nE 2026-01-01T00:00:00.000Z trainer] lost\xff\x1b[2J'");
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_EQ(line.substr(0, 2), "W ");
  EXPECT_TRUE(IsUtf8(line));
  EXPECT_NE(
      line.find("'a\\nE 2026-01-01T00:00:00.000Z trainer] lost\\xff\\x1b[2J'"),
      std::string::npos)
      << line;
}

TEST(LogTest, LinesOfItsOwnAreKept) {
  EXPECT_NE(Logged("done\n  in 3 s").find("done\n  in 3 s\n"),
            std::string::npos);
}

}  // namespace
}  // namespace dapd
