#include "common/model/spec/gpu_memory_wait.h"

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuMemoryWaitTest : public testing::Test {
 protected:
  // Waits for a GPU whose memory is held at the first `held` looks.
  absl::Status Await(int held, absl::Duration patience = absl::Hours(1)) {
    testing::internal::CaptureStderr();
    const absl::Status status = AwaitGpuMemory(
        [&]() -> absl::Status {
          return looks_++ < held
                     ? absl::ResourceExhaustedError("3 GiB are free")
                     : then_;
        },
        patience,
        [this](absl::Duration) { return looks_ >= stop_at_; });
    log_ = testing::internal::GetCapturedStderr();
    return status;
  }

  absl::Status then_;
  int looks_ = 0;
  int stop_at_ = 1000;
  std::string log_;
};

TEST_F(GpuMemoryWaitTest, MemoryThatIsFreeIsNotWaitedFor) {
  EXPECT_TRUE(Await(0).ok());
  EXPECT_EQ(looks_, 1);
  EXPECT_EQ(log_, "");
}

TEST_F(GpuMemoryWaitTest, MemoryThatIsHeldIsWaitedFor) {
  EXPECT_TRUE(Await(3).ok());
  EXPECT_EQ(looks_, 4);
  EXPECT_THAT(log_,
              AllOf(HasSubstr("waiting up to 1h"),
                    HasSubstr("3 GiB are free"),
                    HasSubstr("free now")));
}

TEST_F(GpuMemoryWaitTest, TheWaitHasAnEnd) {
  const absl::Status status = Await(1000, absl::ZeroDuration());
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("3 GiB are free"),
                    HasSubstr("did not become free within 0")));
  EXPECT_EQ(looks_, 1);
}

TEST_F(GpuMemoryWaitTest, AStopEndsTheWait) {
  stop_at_ = 5;
  EXPECT_EQ(ExitCodeOf(Await(1000)), ExitCode::kInterrupted);
  EXPECT_EQ(looks_, 5);
}

TEST_F(GpuMemoryWaitTest, NoWaitMendsAConfiguration) {
  then_ = ConfigError("too small");
  EXPECT_EQ(Await(0), then_);
  EXPECT_EQ(looks_, 1);
  looks_ = 0;
  EXPECT_EQ(Await(2), then_) << "once nothing is short any more";
}

}  // namespace
}  // namespace dapd
