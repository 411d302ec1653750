#include "common/base/end_for_restart.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(EndForRestartDeathTest, AProcessEndsToBeStartedAgain) {
  EXPECT_EXIT(EndForRestart(absl::AbortedError("the GPU is lost")),
              testing::ExitedWithCode(75),
              "the GPU is lost");
}

}  // namespace
}  // namespace dapd
