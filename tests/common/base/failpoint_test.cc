#include "common/base/failpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/steady_time.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;

constexpr int kHits = 4;

// A process arms its failpoints once, so every case runs in its own new
// process, which no earlier test has armed.
class FailpointDeathTest : public testing::Test {
 protected:
  FailpointDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void Arm(const std::string& text) {
  ::alarm(60);  // a hit that does not return ends the process
  ::setenv("DAPD_FAILPOINTS", text.c_str(), /*overwrite=*/1);
}

bool HitPlace() { return HitFailpoint("place").ok(); }

// Writes a letter to stderr at each hit of "place": 'o' without an error, 'e'
// with an error.
[[noreturn]] void HitFourTimes(const std::string& text) {
  Arm(text);
  std::fputs("hits: ", stderr);
  for (int i = 0; i < kHits; ++i) {
    std::fputc(HitPlace() ? 'o' : 'e', stderr);
  }
  std::_Exit(0);
}

TEST_F(FailpointDeathTest, ErrorsComeAtTheHitsThatAreNamed) {
  const struct {
    std::string text;
    std::string hits;
  } cases[] = {
      {"place=error", "eeee"},
      {"place=error:2", "eeoo"},
      {"place=error@3", "ooeo"},
      {"place=error@5", "oooo"},
      {"other=kill;place=error@1", "eooo"},
      {";place=error:1;", "eooo"},
      {"other=error", "oooo"},
      {"", "oooo"},
  };
  for (const auto& [text, hits] : cases) {
    EXPECT_EXIT(HitFourTimes(text), ExitedWithCode(0), "hits: " + hits + "$")
        << text;
  }
}

TEST_F(FailpointDeathTest, AnErrorIsThatOfAFullDisk) {
  EXPECT_EXIT(
      {
        Arm("place=error");
        std::fputs(HitFailpoint("place").ToString().c_str(), stderr);
        std::_Exit(0);
      },
      ExitedWithCode(0),
      "RESOURCE_EXHAUSTED: cannot write at failpoint place: No space left on "
      "device.*dapd/file_error");
}

TEST_F(FailpointDeathTest, AProcessIsKilledAtOneHit) {
  EXPECT_EXIT(HitFourTimes("place=kill"), KilledBySignal(SIGKILL), "hits: $");
  EXPECT_EXIT(
      HitFourTimes("place=kill@3"), KilledBySignal(SIGKILL), "hits: oo$");
  EXPECT_EXIT(HitFourTimes("place=kill@5"), ExitedWithCode(0), "hits: oooo$");
}

// Writes 's' to stderr once the process that hits has stopped, and continues
// it.
[[noreturn]] void StopAndContinue(const std::string& text) {
  const pid_t child = ::fork();
  if (child == 0) HitFourTimes(text);
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  if (!WIFSTOPPED(status)) std::_Exit(1);
  std::fputc('s', stderr);
  ::kill(child, SIGCONT);
  ::waitpid(child, &status, WUNTRACED);
  if (WIFSTOPPED(status)) ::kill(child, SIGKILL);
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

TEST_F(FailpointDeathTest, AProcessStopsAtOneHitAndCanBeContinued) {
  EXPECT_EXIT(StopAndContinue("place=stop"), ExitedWithCode(0), "hits: soooo$");
  EXPECT_EXIT(
      StopAndContinue("place=stop@2"), ExitedWithCode(0), "hits: osooo$");
}

// Ends with code 0 if four hits take at least `least`.
[[noreturn]] void HitForAsLongAs(absl::Duration least,
                                 const std::string& text) {
  Arm(text);
  const absl::Time start = SteadyNow();
  for (int i = 0; i < kHits; ++i) HitPlace();
  std::_Exit(SteadyNow() - start >= least ? 0 : 1);
}

TEST_F(FailpointDeathTest, SleepComesAtEveryHitOrAtOne) {
  EXPECT_EXIT(HitForAsLongAs(absl::Milliseconds(80), "place=sleep:20"),
              ExitedWithCode(0),
              "");
  EXPECT_EXIT(HitForAsLongAs(absl::Milliseconds(20), "place=sleep:20@4"),
              ExitedWithCode(0),
              "");
  // The sleep would last a day, but none of these hits sleeps.
  EXPECT_EXIT(
      HitFourTimes("place=sleep:86400000@5"), ExitedWithCode(0), "hits: oooo$");
}

// Returns whether a hit waits until another thread has removed `path`.
bool IsHeldBy(const std::string& path) {
  const std::jthread release([&path] {
    // A hit that does not wait returns within this time.
    absl::SleepFor(absl::Milliseconds(50));
    std::filesystem::remove(path);
  });
  HitPlace();
  return !std::filesystem::exists(path);
}

void Touch(const std::string& path) { std::ofstream{path}; }

TEST_F(FailpointDeathTest, AHoldLastsAsLongAsItsFile) {
  const auto hold_at_every_hit = [] {
    const std::string path = TempPath("hold");
    Arm(absl::StrCat("place=hold:", path));
    HitPlace();  // there is no such file yet
    for (int i = 0; i < 2; ++i) {
      Touch(path);
      if (!IsHeldBy(path)) std::exit(1);
    }
    std::exit(0);
  };
  EXPECT_EXIT(hold_at_every_hit(), ExitedWithCode(0), "");
  const auto hold_at_the_second_hit = [] {
    const std::string path = TempPath("hold");
    Arm(absl::StrCat("place=hold:", path, "@2"));
    Touch(path);
    HitPlace();
    if (!IsHeldBy(path)) std::exit(1);
    Touch(path);
    HitPlace();
    std::exit(0);
  };
  EXPECT_EXIT(hold_at_the_second_hit(), ExitedWithCode(0), "");
}

TEST_F(FailpointDeathTest, ATextThatCannotBeReadEndsTheProcess) {
  for (const char* text : {"place",
                           "place=",
                           "place=explode",
                           "place=kill=stop",
                           "place=kill@",
                           "place=kill@x",
                           "place=kill@1@2",
                           "place=error:x",
                           "place=sleep:",
                           "place=sleep:1:2",
                           "place=hold",
                           "place=hold:",
                           "place=hold:/a:b",
                           "other=kill;place",
                           // These texts arm nothing or less than they say.
                           "=kill",
                           "place=kill@0",
                           "place=kill@-1",
                           "place=kill:3",
                           "place=error:0",
                           "place=error@0",
                           "place=sleep",
                           "place=sleep:-5",
                           "place=kill@2;place=error@1"}) {
    EXPECT_EXIT(HitFourTimes(text),
                ExitedWithCode(2),
                HasSubstr("DAPD_FAILPOINTS: cannot read '"))
        << text;
  }
}

}  // namespace
}  // namespace dapd
