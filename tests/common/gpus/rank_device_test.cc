#include "common/gpus/rank_device.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

GpuReport Machine() {
  return {.driver = "580.82.07",
          .gpus = {{.name = "NVIDIA H100 80GB HBM3", .major = 9},
                   {.name = "NVIDIA A100", .major = 8}}};
}

TEST(RankDeviceTest, TheFirstGpuItsDriverAndNcclAreNamed) {
  EXPECT_EQ(DescribeRankDevice(Machine(), 22809),
            "NVIDIA H100 80GB HBM3 (sm_90), driver 580.82.07, NCCL 2.28.9");
  EXPECT_EQ(DescribeRankDevice(Machine(), 23007),
            "NVIDIA H100 80GB HBM3 (sm_90), driver 580.82.07, NCCL 2.30.7");
}

TEST(RankDeviceTest, ValuesThatAreNotKnownAreLeftOut) {
  GpuReport report = Machine();
  report.driver.clear();
  EXPECT_EQ(DescribeRankDevice(report, 0), "NVIDIA H100 80GB HBM3 (sm_90)");
  EXPECT_EQ(DescribeRankDevice({}, 22809), "");
  EXPECT_EQ(RankDevice(/*on_gpu=*/false), "");
}

}  // namespace
}  // namespace dapd
