#include "common/base/visible_gpus.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(VisibleGpusTest, WhatTheVariableNamesIsWhatThereIs) {
  ::setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7f,0", 1);
  EXPECT_THAT(VisibleGpus(), ElementsAre("3", "GPU-7f", "0"));
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_THAT(VisibleGpus(), IsEmpty());
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(VisibleGpusTest, ASettingIsReadAsItWasWritten) {
  EXPECT_EQ(GpuSetting({"3", "0"}), "CUDA_VISIBLE_DEVICES=3,0");
}

TEST(GpuDealerTest, EachProcessGetsItsOwnWhileThereAreSome) {
  GpuDealer dealer({"0", "1", "2", "3"});
  EXPECT_THAT(dealer.Deal(1), ElementsAre("0"));
  EXPECT_THAT(dealer.Deal(2), ElementsAre("1", "2"));
  EXPECT_THAT(dealer.Deal(1), ElementsAre("3"));
  EXPECT_THAT(dealer.Deal(1), ElementsAre("0"));
}

TEST(GpuDealerTest, AGroupNeverGetsOneTwice) {
  GpuDealer dealer({"0", "1", "2"});
  EXPECT_THAT(dealer.Deal(2), ElementsAre("0", "1"));
  EXPECT_THAT(dealer.Deal(2), ElementsAre("2", "0"));
  EXPECT_THAT(dealer.Deal(5), ElementsAre("1", "2", "0"));
  EXPECT_THAT(GpuDealer({}).Deal(1), IsEmpty());
}

}  // namespace
}  // namespace dapd
