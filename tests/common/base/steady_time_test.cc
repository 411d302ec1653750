// Tests that waits and measurements are right while the machine's clock is set.
#include "common/base/steady_time.h"

#include <atomic>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/child_process.h"
#include "common/base/line_process.h"
#include "common/base/progress.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/machine_clock.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

TEST(SteadyTimeTest, AChildHasAllOfItsGraceToEnd) {
  MachineClock clock;
  std::vector<std::string> lines;
  std::atomic<bool> is_ready = false;
  ChildProcess child("child",
                     {"/bin/sh",
                      "-c",
                      "trap 'echo ending; sleep 0.5; echo ended; exit 0' TERM; "
                      "echo ready; while :; do sleep 0.02; done"},
                     /*log_path=*/"");
  child.RelayLines([&](absl::string_view line) {
    lines.emplace_back(line);
    if (line == "ending") clock.Set(absl::Hours(1));
    if (line == "ready") is_ready = true;
  });
  ASSERT_TRUE(child.Start().ok());
  EXPECT_TRUE(Eventually([&] { return is_ready.load(); }));
  child.Stop(absl::Seconds(30));
  EXPECT_THAT(lines, ElementsAre("ready", "ending", "ended"));
}

TEST(SteadyTimeTest, ALineHasUntilItsDeadline) {
  MachineClock clock;
  LineProcess echo("echo", {"cat"});
  ASSERT_TRUE(echo.Start().ok());
  const absl::Time deadline = SteadyNow() + absl::Seconds(30);
  clock.Set(absl::Hours(1));
  ASSERT_TRUE(echo.Write("line", deadline).ok());
  EXPECT_EQ(echo.Read(deadline).value_or(""), "line");
}

TEST(SteadyTimeTest, ProgressIsNotShownBeforeItsTime) {
  testing::internal::CaptureStderr();
  {
    MachineClock clock;
    Progress progress("rows", 3);
    clock.Set(absl::Hours(1));
    progress.Update(1);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace dapd
