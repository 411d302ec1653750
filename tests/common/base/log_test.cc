#include "common/base/log.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/base/utf8.h"

namespace dapd {
namespace {

// Restores this process's log to its state before the test.
class LogTest : public testing::Test {
 protected:
  ~LogTest() override { SetLog({}); }
};

std::string Logged(const std::string& message) {
  testing::internal::CaptureStderr();
  LogWarning(message);
  return testing::internal::GetCapturedStderr();
}

TEST_F(LogTest, AMessageIsOneLineWhateverItQuotes) {
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

TEST_F(LogTest, LinesOfItsOwnAreKept) {
  EXPECT_NE(Logged("done\n  in 3 s").find("done\n  in 3 s\n"),
            std::string::npos);
}

constexpr absl::Time kTime = absl::FromUnixMillis(1769860800123);

TEST_F(LogTest, AsTextALineSaysWhichRankItIsOf) {
  const auto line = [](int64_t rank) {
    return FormatLogLine(LogFormat::kText,
                         {.service = "trainer", .rank = rank},
                         /*step=*/0,
                         Severity::kInfo,
                         kTime,
                         "done");
  };
  EXPECT_EQ(line(2), "I 2026-01-31T12:00:00.123Z trainer-2] done\n");
  EXPECT_EQ(line(0), "I 2026-01-31T12:00:00.123Z trainer] done\n");
}

TEST_F(LogTest, AsJsonAMessageIsAnObjectOfItsFields) {
  const LogSource trainer = {.service = "trainer", .run = "mine", .rank = 0};
  EXPECT_EQ(FormatLogLine(
                LogFormat::kJson, trainer, 12, Severity::kInfo, kTime, "done"),
            R"({"time":"2026-01-31T12:00:00.123Z","level":"info",)"
            R"("service":"trainer","run":"mine","rank":0,"step":12,)"
            R"("message":"done"})"
            "\n");
  // Unknown values are left out.
  EXPECT_EQ(FormatLogLine(LogFormat::kJson,
                          {.service = "run"},
                          /*step=*/0,
                          Severity::kError,
                          kTime,
                          "lost"),
            R"({"time":"2026-01-31T12:00:00.123Z","level":"error",)"
            R"("service":"run","message":"lost"})"
            "\n");
}

TEST_F(LogTest, AsJsonAMessageIsOneObjectWhateverItQuotes) {
  for (const std::string& hostile :
       {std::string("\"}\n{\"level\": \"error\"}"),
        std::string("\xff\xfe\xc0\x80 \xed\xa0\x80"),
        std::string("\0\x1b[2J\r\u2028\u202e\\", 13),
        std::string(100'000, '"')}) {
    const std::string line =
        FormatLogLine(LogFormat::kJson,
                      {.service = "trainer", .run = hostile},
                      1,
                      Severity::kWarning,
                      kTime,
                      hostile);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    EXPECT_TRUE(IsUtf8(line));
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("level"), "warning");
    EXPECT_EQ(json.at("message").get<std::string>().find('\x1b'),
              std::string::npos);
  }
  const auto own = nlohmann::json::parse(FormatLogLine(
      LogFormat::kJson, {}, 0, Severity::kInfo, kTime, "done\n  in 3 s"));
  EXPECT_EQ(own.at("message"), "done\n  in 3 s");
}

// Replaces stderr by a pipe and reads its lines.
class Piped {
 public:
  Piped() : stderr_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe(ends_), 0);
    ::dup2(ends_[1], STDERR_FILENO);
    reader_ = std::jthread([this] {
      char buffer[4096];
      for (ssize_t size = 0;
           (size = ::read(ends_[0], buffer, sizeof(buffer))) > 0;) {
        text_.append(buffer, static_cast<size_t>(size));
      }
    });
  }
  std::vector<std::string> Lines() {
    ::dup2(stderr_, STDERR_FILENO);
    ::close(ends_[1]);
    reader_.join();
    ::close(ends_[0]);
    ::close(stderr_);
    std::vector<std::string> lines = absl::StrSplit(text_, '\n');
    EXPECT_EQ(lines.back(), "");
    lines.pop_back();
    return lines;
  }

 private:
  int ends_[2];
  const int stderr_;
  std::string text_;
  std::jthread reader_;
};

TEST_F(LogTest, ThreadsAndForkedProcessesLeaveEachOthersLinesWhole) {
  constexpr int kLines = 500;
  SetLog({.format = LogFormat::kJson, .source = {.service = "parent"}});
  Piped piped;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    SetLogName("child");
    for (int i = 0; i < kLines; ++i) LogInfo(std::string(2000, 'c'));
    ::_exit(0);
  }
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([] {
        for (int j = 0; j < kLines; ++j) LogInfo(std::string(2000, 'p'));
      });
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  int from_child = 0;
  const std::vector<std::string> lines = piped.Lines();
  for (const std::string& line : lines) {
    const auto json = nlohmann::json::parse(line);
    from_child += json.at("service") == "child";
    EXPECT_EQ(json.at("message").get<std::string>().size(), 2000U);
  }
  EXPECT_EQ(lines.size(), 4U * kLines);
  EXPECT_EQ(from_child, kLines);
}

TEST_F(LogTest, LinesBeyondAPipesMeasureStayWholeAmongThreads) {
  SetLog({.format = LogFormat::kJson});
  Piped piped;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        for (int j = 0; j < 20; ++j) LogInfo(std::string(300'000, 'x'));
      });
    }
  }
  const std::vector<std::string> lines = piped.Lines();
  EXPECT_EQ(lines.size(), 80U);
  for (const std::string& line : lines) {
    EXPECT_TRUE(nlohmann::json::accept(line));
  }
}

TEST_F(LogTest, WhatAnotherProgramSaidStaysOrBecomesAMessage) {
  SetLog({.format = LogFormat::kJson, .min_severity = Severity::kError});
  testing::internal::CaptureStderr();
  const std::string logged = R"({"time":"t","level":"info","message":"m"})";
  PassOnLog(logged, {.service = "trainer"});
  PassOnLog("terminate called \xff", {.service = "trainer", .rank = 0});
  PassOnLog(R"({"time":"t","message":)", {.service = "trainer"});
  PassOnLog("", {.service = "trainer"});
  const std::vector<std::string> lines =
      absl::StrSplit(testing::internal::GetCapturedStderr(), '\n');
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], logged);
  const auto words = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(words.at("message"), "terminate called \\xff");
  EXPECT_EQ(words.at("service"), "trainer");
  EXPECT_EQ(words.at("level"), "warning");
  EXPECT_EQ(nlohmann::json::parse(lines[2]).at("message"),
            R"({"time":"t","message":)");
}

}  // namespace
}  // namespace dapd
