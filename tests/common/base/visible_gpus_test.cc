#include "common/base/visible_gpus.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

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

TEST(VisibleGpusTest, AListMayHideAllAndHaveBlanks) {
  for (const char* hides_all : {"", " ", "-1", "NoDevFiles", " -1"}) {
    EXPECT_THAT(NamedGpus(hides_all), IsEmpty()) << hides_all;
  }
  EXPECT_THAT(NamedGpus("0, 1,,GPU-7f "), ElementsAre("0", "1", "GPU-7f"));
  ::setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles", 1);
  EXPECT_THAT(VisibleGpus(), IsEmpty());
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(VisibleGpusTest, WhateverTheirNumbersDevicesAreCountedFromNought) {
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  const std::string devices = TempPath("devices");
  ASSERT_TRUE(MakeDirectories(devices).ok());
  EXPECT_THAT(VisibleGpus(devices), IsEmpty());
  for (const char* name : {"nvidia3",
                           "nvidia5",
                           "nvidia12",
                           "nvidiactl",
                           "nvidia-uvm",
                           "nvidia",
                           "null"}) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(devices, name), "").ok());
  }
  EXPECT_THAT(VisibleGpus(devices), ElementsAre("0", "1", "2"));
  EXPECT_THAT(GpuNodes(devices), ElementsAre("nvidia3", "nvidia5", "nvidia12"));
  EXPECT_THAT(VisibleGpus(JoinPath(devices, "none")), IsEmpty());
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
