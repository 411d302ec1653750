#include "services/cli/device_text.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/visible_gpus.h"

namespace dapd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

MachineSplit Split(const GpuReport& report) {
  MachineSplit split;
  split.config.model.device = DeviceChoice::kAuto;
  split.names = GpuNames(report);
  split.gpus = report.gpus;
  return split;
}

GpuReport OneOf(double gib) {
  return {.driver = "580.82.07",
          .cuda_version = 13000,
          .gpus = {{.name = "NVIDIA L4",
                    .uuid = "GPU-1a",
                    .major = 8,
                    .minor = 9,
                    .total_bytes = static_cast<int64_t>(gib * (1 << 30)),
                    .free_bytes = static_cast<int64_t>(gib * (1 << 29))}}};
}

MemoryPlan Plan() {
  MemoryPlan plan;
  plan.trainer.items = {{"base", 9.0 * (1 << 30)}};
  return plan;
}

class DeviceTextTest : public testing::Test {
 protected:
  // Names the one GPU of these tests as `dapd run` would assign it.
  DeviceTextTest() { ::setenv(kVisibleGpusVariable, "0", 1); }
  ~DeviceTextTest() override { ::unsetenv(kVisibleGpusVariable); }
};

TEST_F(DeviceTextTest, KernelsDriverAndGpusAreSaidAndWhetherTheRunFits) {
  EXPECT_THAT(
      DeviceText(Split(OneOf(24)), absl::OkStatus(), Plan(), OneOf(24), true),
      ElementsAre(
          HasSubstr("on GPUs"),
          "driver           580.82.07, for CUDA up to 13.0",
          "gpus             1 of 24.0 GiB, 12.0 GiB free: NVIDIA L4 "
          "(sm_89)",
          "fit              everything that dapd run starts fits on them"));
}

TEST_F(DeviceTextTest, APlanThatDoesNotFitIsSaidAsARunWouldSayIt) {
  EXPECT_THAT(
      DeviceText(Split(OneOf(8)), absl::OkStatus(), Plan(), OneOf(8), true)
          .back(),
      HasSubstr("dapd run is refused here: the plan needs at least 9.0 "
                "GiB (trainer 9.0, rollout-0 0.0, teacher-0 0.0)"));
  EXPECT_THAT(
      DeviceText(Split(OneOf(16)), absl::OkStatus(), Plan(), OneOf(16), true)
          .back(),
      AllOf(HasSubstr("dapd run would wait: the plan needs at least 9.0 GiB"),
            HasSubstr("of which 8.0 GiB are free")));
}

TEST_F(DeviceTextTest, TheSplitOfSeveralGpusIsSaidAndARefusalOfIt) {
  MachineSplit split = Split(OneOf(24));
  split.text = "2 GPUs: 1 trainer rank on 0";
  const auto lines =
      DeviceText(split, absl::OkStatus(), Plan(), OneOf(24), true);
  EXPECT_THAT(lines[3],
              testing::Eq("dapd run         2 GPUs: 1 trainer rank on 0"));
  EXPECT_THAT(DeviceText(absl::InvalidArgumentError("run.gpus is 9"),
                         absl::OkStatus(),
                         Plan(),
                         OneOf(24),
                         true)
                  .back(),
              HasSubstr("dapd run is refused here: run.gpus is 9"));
}

TEST_F(DeviceTextTest, AModelThatGpusDoNotTakeIsSaid) {
  const absl::Status refused = absl::InvalidArgumentError("head dimension 12");
  EXPECT_THAT(
      DeviceText(Split(OneOf(24)), refused, Plan(), OneOf(24), true).back(),
      HasSubstr("dapd run is refused here: head dimension 12"));
}

TEST_F(DeviceTextTest, WhatIsMissingIsSaid) {
  GpuReport none;
  none.usable = absl::NotFoundError("there is no NVIDIA driver");
  EXPECT_THAT(
      DeviceText(Split(none), absl::OkStatus(), Plan(), none, false),
      ElementsAre(
          "kernels          none for GPUs: this build has no CUDA backend",
          "driver           none",
          "gpus             none usable: there is no NVIDIA driver"));
}

TEST_F(DeviceTextTest, AGpuThatCannotBeUsedIsShownWithTheReason) {
  GpuReport old = OneOf(15);
  old.usable = absl::FailedPreconditionError("GPU 0 is too old");
  const auto lines =
      DeviceText(Split(old), absl::OkStatus(), Plan(), old, true);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_THAT(lines[2], StartsWith("gpus             1 of 15.0 GiB"));
  EXPECT_THAT(lines[3], HasSubstr("none usable: GPU 0 is too old"));
}

}  // namespace
}  // namespace dapd
