#include "common/base/device_watch.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

class DeviceWatchTest : public testing::Test {
 protected:
  std::vector<std::string> told_;
  DeviceWatch watch_ = DeviceWatch([this](const absl::Status& why) {
    told_.push_back(std::string(why.message()));
  });
};

TEST_F(DeviceWatchTest, ALostDeviceIsToldAtOnce) {
  watch_.Note(absl::OkStatus());
  watch_.Note(absl::AbortedError("an illegal access"));
  EXPECT_EQ(told_, std::vector<std::string>{"an illegal access"});
}

TEST_F(DeviceWatchTest, OtherFailuresAreToldWhenThreeFollowEachOther) {
  const absl::Status failure = absl::InternalError("odd");
  for (int i = 0; i < 2; ++i) {
    watch_.Note(failure);
    watch_.Note(failure);
    watch_.Note(absl::OkStatus());
  }
  EXPECT_TRUE(told_.empty());
  for (int i = 0; i < 3; ++i) watch_.Note(failure);
  EXPECT_EQ(told_, std::vector<std::string>{"odd"});
}

TEST_F(DeviceWatchTest, WantOfMemoryAndBadAdaptersAreNotTheDevices) {
  for (int i = 0; i < 9; ++i) {
    watch_.Note(absl::ResourceExhaustedError("no memory"));
    watch_.Note(absl::InvalidArgumentError("a bad adapter"));
  }
  EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace dapd
