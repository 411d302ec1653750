#include "common/gpus/gpu_labels.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(GpuLabelsTest, KernelsDriverAndGpusAreSaid) {
  GpuReport report{.driver = "580.82.07"};
  for (const char* name : {"NVIDIA H100", "NVIDIA A100", "NVIDIA H100"}) {
    report.gpus.push_back({.name = name});
  }
  EXPECT_THAT(LabelsOf(report, "by nvcc 13.0.88 for sm_80, sm_90"),
              ElementsAre(Pair("driver", "580.82.07"),
                          Pair("gpus", "1 x NVIDIA A100, 2 x NVIDIA H100"),
                          Pair("kernels", "by nvcc 13.0.88 for sm_80, sm_90")));
}

TEST(GpuLabelsTest, WhatIsNotThereIsNoLabel) {
  EXPECT_THAT(LabelsOf({}, ""), IsEmpty());
  EXPECT_THAT(GpuLabels(DeviceChoice::kCpu), IsEmpty());
}

}  // namespace
}  // namespace dapd
