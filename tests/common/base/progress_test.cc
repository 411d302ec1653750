#include "common/base/progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::Time At(double seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

TEST(ProgressMeterTest, ShowsDoneTotalRateTimeLeftAndNote) {
  ProgressMeter meter("steps", 20, 0, At(0));
  meter.Update(5, At(10));
  EXPECT_EQ(meter.SecondsPerUnit(), 2.0);
  EXPECT_EQ(meter.EtaSeconds(), 30.0);
  EXPECT_EQ(
      meter.Line("loss 0.5"),
      "[######..................] 5/20 steps  0.50/s  ETA 0:30  loss 0.5");
}

TEST(ProgressMeterTest, SaysNoRateBeforeTheFirstUnit) {
  const ProgressMeter meter("steps", 20, 0, At(0));
  EXPECT_EQ(meter.SecondsPerUnit(), 0.0);
  EXPECT_EQ(meter.EtaSeconds(), 0.0);
  EXPECT_EQ(meter.Line(""), "[........................] 0/20 steps");
}

TEST(ProgressMeterTest, WhatWasThereBeforeDoesNotCountForTheRate) {
  ProgressMeter meter("steps", 20, 10, At(0));
  meter.Update(12, At(4));
  EXPECT_EQ(meter.SecondsPerUnit(), 2.0);
  EXPECT_EQ(meter.EtaSeconds(), 16.0);
}

TEST(ProgressMeterTest, WhatCameBeforeItBeginsDoesNotCountForTheRate) {
  ProgressMeter meter("steps", 20, 10, At(0));
  meter.Begin(At(600));
  EXPECT_EQ(meter.SecondsPerUnit(), 0.0);
  meter.Update(11, At(602));
  EXPECT_EQ(meter.SecondsPerUnit(), 2.0);
  EXPECT_EQ(meter.EtaSeconds(), 18.0);
}

TEST(ProgressMeterTest, TheRateFollowsTheLastUpdates) {
  ProgressMeter meter("steps", 1000, 0, At(0));
  meter.Update(1, At(600));  // a slow start
  for (int i = 2; i <= 30; ++i) meter.Update(i, At(600 + i));
  EXPECT_EQ(meter.SecondsPerUnit(), 1.0);
}

TEST(ProgressMeterTest, AnUpdateWithoutProgressDoesNotPushOthersOut) {
  ProgressMeter meter("steps", 10, 0, At(0));
  meter.Update(1, At(5));
  for (int i = 0; i < 100; ++i) meter.Update(1, At(5 + i));
  EXPECT_EQ(meter.SecondsPerUnit(), 5.0);
}

TEST(ProgressMeterTest, WithoutATotalThereIsNoBarAndNoTimeLeft) {
  ProgressMeter meter("rows", 0, 0, At(0));
  meter.Update(300, At(2));
  EXPECT_EQ(meter.Line("a.jsonl"), "300 rows  150/s  a.jsonl");
}

TEST(ProgressMeterTest, HoursAreHoursAndABarNeverOverflows) {
  ProgressMeter meter("steps", 10, 0, At(0));
  meter.Update(1, At(10000));
  EXPECT_THAT(meter.Line(""), HasSubstr("ETA 25:00:00"));
  meter.Update(11, At(10001));
  EXPECT_THAT(meter.Line(""), StartsWith("[########################] 11/10"));
  EXPECT_THAT(meter.Line(""), HasSubstr("ETA 0:00"));
}

TEST(ProgressMeterTest, ALineThatIsTooLongLosesItsBarAndThenWholeParts) {
  ProgressMeter meter("steps", 40, 20, At(0));
  meter.Update(28, At(16));
  const std::string note = "loss 0.0353  grad 0.15";
  EXPECT_EQ(meter.Line(note, 79),
            "[################.......] 28/40 steps  0.50/s  ETA 0:24  "
            "loss 0.0353  grad 0.15");
  EXPECT_EQ(meter.Line(note, 63),
            "[#####...] 28/40 steps  0.50/s  ETA 0:24  loss 0.0353");
  EXPECT_EQ(meter.Line(note, 53), meter.Line(note, 63));
  EXPECT_EQ(meter.Line(note, 52), "[#####...] 28/40 steps  0.50/s  ETA 0:24");
  EXPECT_EQ(meter.Line(note, 10), "[#####...]");
  ProgressMeter rows("rows", 0, 0, At(0));
  rows.Update(300, At(2));
  EXPECT_EQ(rows.Line("a.jsonl", 20), "300 rows  150/s");
}

TEST(ProgressTest, AShortCommandLeavesALogFileAlone) {
  testing::internal::CaptureStderr();
  {
    Progress progress("rows", 3);
    for (int i = 1; i <= 3; ++i) progress.Update(i);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ProgressTest, WhatIsDoneOnceItHasBegunTakesTheTimeSince) {
  Progress progress("rows", 3);
  progress.Begin();
  progress.Update(1);
  EXPECT_GE(progress.SecondsPerUnit(), 0.0);
  EXPECT_LT(progress.SecondsPerUnit(), 600.0);
}

}  // namespace
}  // namespace dapd
