#include "common/base/device_watch.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(DeviceWatchTest, ThreeInternalErrorsInARowAreReportedAndEachFurtherOne) {
  int reports = 0;
  DeviceWatch watch([&](const absl::Status& why) {
    EXPECT_EQ(why.message(), "CUDA error");
    ++reports;
  });
  for (const int expected : {0, 0, 1, 2}) {
    watch.Note(absl::InternalError("CUDA error"));
    EXPECT_EQ(reports, expected);
  }
}

TEST(DeviceWatchTest, WhatIsNotTheDevicesFaultBeginsAnew) {
  int reports = 0;
  DeviceWatch watch([&](const absl::Status&) { ++reports; });
  for (const absl::Status& other :
       {absl::OkStatus(), absl::ResourceExhaustedError("no memory")}) {
    watch.Note(absl::InternalError("CUDA error"));
    watch.Note(absl::InternalError("CUDA error"));
    watch.Note(other);
  }
  EXPECT_EQ(reports, 0);
}

TEST(DeviceWatchTest, NobodyNeedsToBeTold) {
  DeviceWatch watch({});
  for (int i = 0; i < 4; ++i) watch.Note(absl::InternalError("CUDA error"));
}

TEST(DeviceWatchDeathTest, AWorkerEndsToBeStartedAgain) {
  EXPECT_EXIT(EndForRestart(absl::InternalError("CUDA error")),
              testing::ExitedWithCode(75),
              "CUDA error");
}

}  // namespace
}  // namespace dapd
