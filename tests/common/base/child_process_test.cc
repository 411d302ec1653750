#include "common/base/child_process.h"

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

int EndOf(ChildProcess& child) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (absl::Now() < deadline) {
    if (const int code = child.Poll(); code >= 0) return code;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return -1;
}

TEST(ChildProcessTest, AllThatItSaidHasComeWhenItsEndIsTold) {
  std::vector<std::string> lines;
  ChildProcess child(
      "talker",
      {"/bin/sh", "-c", "echo out; echo err >&2; printf 'no newline'; exit 3"},
      /*log_path=*/"");
  child.RelayLines([&](absl::string_view line) { lines.emplace_back(line); });
  ASSERT_TRUE(child.Start().ok());
  EXPECT_EQ(EndOf(child), 3);
  EXPECT_THAT(lines, ElementsAre("out", "err", "no newline"));
  // A process that died can be started again.
  ASSERT_TRUE(child.Start().ok());
  EXPECT_EQ(EndOf(child), 3);
  EXPECT_EQ(lines.size(), 6U);
}

TEST(ChildProcessTest, AProcessThatItLeavesBehindDoesNotHoldItsEndUp) {
  std::vector<std::string> lines;
  ChildProcess child("parent",
                     {"/bin/sh", "-c", "sleep 1000 & echo $!; exit 0"},
                     /*log_path=*/"");
  child.RelayLines([&](absl::string_view line) { lines.emplace_back(line); });
  ASSERT_TRUE(child.Start().ok());
  EXPECT_EQ(EndOf(child), 0);
  ASSERT_THAT(lines, SizeIs(1));
  pid_t left_behind = 0;
  ASSERT_TRUE(absl::SimpleAtoi(lines[0], &left_behind));
  EXPECT_EQ(::kill(left_behind, SIGKILL), 0) << "it ended first";
}

TEST(ChildProcessTest, ATerminalDoesNotStopItForWritingFromTheBackground) {
  ChildProcess child(
      "writer", {"/bin/sh", "-c", "kill -TTOU $$; exit 3"}, TempPath("log"));
  ASSERT_TRUE(child.Start().ok());
  EXPECT_EQ(EndOf(child), 3);
}

TEST(ChildProcessTest, OfALogOnlyTheEndIsRead) {
  const std::string path = TempPath("log");
  const ChildProcess child("talker", {"/bin/true"}, path);
  EXPECT_EQ(child.LogTail(), "") << "there is no file";
  ASSERT_TRUE(WriteFileAtomically(path, "one\ntwo\nthree").ok());
  EXPECT_EQ(child.LogTail(), "one\n  two\n  three");
  const std::string big(100'000, 'x');
  ASSERT_TRUE(
      WriteFileAtomically(path, absl::StrCat(big, "\n", big, "\nend\n")).ok());
  EXPECT_EQ(child.LogTail(), "end");
  ASSERT_TRUE(WriteFileAtomically(path, big).ok());
  EXPECT_EQ(child.LogTail(), std::string(1 << 16, 'x'));
}

TEST(ChildProcessTest, OfACrashTheReportIsRead) {
  const std::string path = TempPath("log");
  const ChildProcess child("talker", {"/bin/true"}, path);
  const std::string report =
      "*** dapd-teacher 0.1 ends by SIGILL. Its stack:\n";
  std::string frames;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&frames, "f", i, "() /bin/x(+0x1)[0x2]\n");
  }
  ASSERT_TRUE(WriteFileAtomically(path,
                                  absl::StrCat("start\n",
                                               report,
                                               "old() /bin/x(+0x1)[0x2]\n",
                                               "start\n",
                                               report,
                                               frames))
                  .ok());
  const std::vector<std::string> lines =
      absl::StrSplit(child.LogTail(), "\n  ");
  ASSERT_THAT(lines, SizeIs(20));
  EXPECT_EQ(lines[0] + "\n", report);
  EXPECT_EQ(lines[1], "f0() /bin/x(+0x1)[0x2]");
  // A line after the report says more than the report.
  ASSERT_TRUE(
      WriteFileAtomically(
          path, absl::StrCat(report, frames, "the model is not there\n"))
          .ok());
  EXPECT_THAT(child.LogTail(), testing::EndsWith("the model is not there"));
  EXPECT_THAT(child.LogTail(), testing::Not(testing::HasSubstr("***")));
}

TEST(ChildProcessTest, ItsWorkIsWhatItDidSinceItsLastStart) {
  const std::string mark = TempPath("work");
  ASSERT_TRUE(WriteFileAtomically(mark, "99\n").ok());
  ChildProcess child(
      "worker",
      {"/bin/sh",
       "-c",
       absl::StrCat("[ -e ", mark, ".lazy ] || echo 7 >$DAPD_WORK_MARK")},
      TempPath("log"));
  EXPECT_FALSE(child.HasWorked());
  child.MarkWorkIn(mark);
  ASSERT_TRUE(child.Start().ok());
  EXPECT_EQ(EndOf(child), 0);
  EXPECT_TRUE(child.HasWorked()) << "an older file is no work";
  ASSERT_TRUE(WriteFileAtomically(mark + ".lazy", "").ok());
  ASSERT_TRUE(child.Start().ok());
  EXPECT_EQ(EndOf(child), 0);
  EXPECT_FALSE(child.HasWorked());
}

void TakeSignal(int /*number*/) {}

TEST(ChildProcessTest, ALogThatCannotBeIsTheUsersAndNoFaultOfTheProgram) {
  const std::string path = TempPath("folder");
  ASSERT_TRUE(MakeDirectories(path).ok());
  const absl::Status status =
      ChildProcess("logger", {"/bin/true"}, path).Start();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("cannot open the log " + path));
}

TEST(ChildProcessTest, ASignalThatComesBeforeItsProgramIsThereEndsIt) {
  // The child inherits this handler until it executes another program.
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = TakeSignal;
  ASSERT_EQ(::sigaction(SIGTERM, &action, &before), 0);
  for (int i = 0; i < 50; ++i) {
    ChildProcess child("sleeper", {"/bin/sleep", "60"}, /*log_path=*/"");
    ASSERT_TRUE(child.Start().ok());
    child.Signal(SIGTERM);
    EXPECT_EQ(EndOf(child), 128 + SIGTERM) << i;
  }
  ::sigaction(SIGTERM, &before, nullptr);
}

}  // namespace
}  // namespace dapd
