#include "common/base/end_for_restart.h"

#include <unistd.h>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

TEST(EndForRestartDeathTest, AProcessEndsToBeStartedAgain) {
  EXPECT_EXIT(EndForRestart(absl::AbortedError("the GPU is lost")),
              testing::ExitedWithCode(75),
              "the GPU is lost");
}

TEST(EndForRestartDeathTest, AnEndThatWaitsTooLongIsCutShort) {
  const auto wait_for_the_device = [] {
    EndForRestartAfter(1);
    while (true) ::pause();
  };
  EXPECT_EXIT(wait_for_the_device(),
              testing::ExitedWithCode(static_cast<int>(ExitCode::kRestart)),
              "too long for its device.*restarted");
}

}  // namespace
}  // namespace dapd
