#include "common/base/line_process.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/steady_time.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

absl::Time Soon() { return SteadyNow() + absl::Seconds(30); }

TEST(LineProcessTest, AnswersComeLineByLine) {
  LineProcess echo("echo", {"cat"});
  ASSERT_TRUE(echo.Start().ok());
  for (const std::string line : {"one", "", "three"}) {
    ASSERT_TRUE(echo.Write(line, Soon()).ok());
    const auto answer = echo.Read(Soon());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer, line);
  }
}

TEST(LineProcessTest, ALineLargerThanAnyPipePasses) {
  LineProcess count("count", {"sh", "-c", "head -n 1 | wc -c"});
  ASSERT_TRUE(count.Start().ok());
  ASSERT_TRUE(count.Write(std::string(3 << 20, 'x'), Soon()).ok());
  const auto answer = count.Read(Soon());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(std::stoll(*answer), (3 << 20) + 1);
}

TEST(LineProcessTest, OneThatHangsIsLeftAtTheDeadline) {
  LineProcess hung("the sleeper", {"sleep", "1000"});
  ASSERT_TRUE(hung.Start().ok());
  const absl::Status late =
      hung.Read(SteadyNow() + absl::Milliseconds(50)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("the sleeper"));
  hung.Kill();
  EXPECT_FALSE(hung.running());
}

TEST(LineProcessTest, OneThatDiesSaysHow) {
  LineProcess ended("the child", {"sh", "-c", "exit 3"});
  ASSERT_TRUE(ended.Start().ok());
  const absl::Status code = ended.Read(Soon()).status();
  EXPECT_TRUE(absl::IsUnavailable(code));
  EXPECT_THAT(std::string(code.message()), HasSubstr("exit code 3"));
  LineProcess killed("the child", {"sh", "-c", "kill -9 $$"});
  ASSERT_TRUE(killed.Start().ok());
  EXPECT_THAT(std::string(killed.Read(Soon()).status().message()),
              HasSubstr("signal 9"));
}

TEST(LineProcessTest, WritingToOneThatDiedIsAnErrorAndNoSignal) {
  LineProcess ended("the child", {"true"});
  ASSERT_TRUE(ended.Start().ok());
  EXPECT_FALSE(ended.Read(Soon()).ok());
  EXPECT_TRUE(absl::IsUnavailable(ended.Write("x", Soon())));
}

TEST(LineProcessTest, ItCanBeStartedAgain) {
  LineProcess once("once", {"head", "-n", "1"});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(once.Start().ok());
    ASSERT_TRUE(once.Write("again", Soon()).ok());
    EXPECT_EQ(once.Read(Soon()).value_or(""), "again");
  }
}

TEST(LineProcessTest, AProgramThatIsNotThereShowsAtTheFirstLine) {
  LineProcess missing("the grader", {"/no/such/program"});
  ASSERT_TRUE(missing.Start().ok());
  EXPECT_THAT(std::string(missing.Read(Soon()).status().message()),
              HasSubstr("exit code 127"));
}

TEST(LineProcessTest, ItsStderrIsRelayed) {
  std::string said;
  {
    LineProcess child("the child",
                      {"sh", "-c", "echo oops >&2; echo done"},
                      {.on_error_line = [&](absl::string_view line) {
                        absl::StrAppend(&said, line, "|");
                      }});
    ASSERT_TRUE(child.Start().ok());
    EXPECT_EQ(child.Read(Soon()).value_or(""), "done");
  }
  EXPECT_EQ(said, "oops|");
}

TEST(LineProcessTest, ALineHasABound) {
  for (const std::string program :
       {"echo 12345678", "printf 12345678; sleep 9"}) {
    LineProcess child(
        "the child", {"sh", "-c", program}, {.max_line_bytes = 7});
    ASSERT_TRUE(child.Start().ok());
    const absl::Status status = child.Read(Soon()).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  }
  LineProcess child(
      "the child", {"sh", "-c", "echo 12345678"}, {.max_line_bytes = 8});
  ASSERT_TRUE(child.Start().ok());
  EXPECT_EQ(child.Read(Soon()).value_or(""), "12345678");
}

TEST(LineProcessTest, AnEndShowsThoughAProcessOfTheChildHoldsItsOutput) {
  LineProcess child("the child", {"sh", "-c", "sleep 1000 & exit 3"});
  ASSERT_TRUE(child.Start().ok());
  EXPECT_THAT(std::string(child.Read(Soon()).status().message()),
              HasSubstr("exit code 3"));
}

TEST(LineProcessTest, AWaitCanBeGivenUp) {
  LineProcess child(
      "the child", {"sleep", "1000"}, {.gives_up = [] { return true; }});
  ASSERT_TRUE(child.Start().ok());
  EXPECT_TRUE(absl::IsCancelled(child.Read(Soon()).status()));
}

}  // namespace
}  // namespace dapd
