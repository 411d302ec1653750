#include "common/gpus/driver_facts.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/visible_gpus.h"
#include "common/gpus/gpu_report.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DriverFactsTest : public testing::Test {
 protected:
  DriverFactsTest() {
    ::unsetenv(kVisibleGpusVariable);
    ::setenv("FAKE_NVIDIA_GPUS",
             "NVIDIA H100 80GB HBM3|9.0|79.5|70.25;Tesla T4|7.5|15|14",
             1);
    const std::string folder = TempPath("machine");
    EXPECT_TRUE(MakeDirectories(JoinPath(folder, "dev")).ok());
    for (const char* name : {"nvidia5", "nvidia4", "nvidiactl"}) {
      EXPECT_TRUE(
          WriteFileAtomically(JoinPath(JoinPath(folder, "dev"), name), "")
              .ok());
    }
    sources_ = {.cuda_library = DAPD_FAKE_DRIVER "/libcuda.so.1",
                .management_library = DAPD_FAKE_DRIVER "/libnvidia-ml.so.1",
                .version_file = JoinPath(folder, "version"),
                .devices = JoinPath(folder, "dev")};
  }

  void WriteVersion(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(sources_.version_file, text).ok());
  }

  DriverSources sources_;
};

TEST_F(DriverFactsTest, GpusAreToldAsTheDriverTellsThem) {
  const DriverFacts facts = ReadDriverFacts(sources_);
  EXPECT_EQ(facts.library_error, "");
  EXPECT_EQ(facts.init_code, 0);
  EXPECT_EQ(facts.cuda_version, 13000);
  EXPECT_THAT(facts.device_nodes, ElementsAre("nvidia4", "nvidia5"));
  ASSERT_EQ(facts.gpus.size(), 2);
  EXPECT_EQ(facts.gpus[0].name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(facts.gpus[0].uuid, "GPU-10101010-1010-1010-1010-101010101010");
  EXPECT_EQ(facts.gpus[0].major, 9);
  EXPECT_EQ(facts.gpus[0].minor, 0);
  EXPECT_EQ(facts.gpus[0].total_bytes, int64_t{159} << 29);
  EXPECT_EQ(facts.gpus[0].free_bytes, int64_t{281} << 28);
  EXPECT_EQ(facts.gpus[1].name, "Tesla T4");
  EXPECT_EQ(facts.gpus[1].minor, 5);
  EXPECT_THAT(facts.all_uuids,
              ElementsAre("GPU-10101010-1010-1010-1010-101010101010",
                          "GPU-11111111-1111-1111-1111-111111111111"));
}

TEST_F(DriverFactsTest, TheVariableChoosesAmongThemAndNotAmongTheirIds) {
  ::setenv(kVisibleGpusVariable, "1", 1);
  const DriverFacts facts = ReadDriverFacts(sources_);
  EXPECT_EQ(facts.visible, "1");
  ASSERT_EQ(facts.gpus.size(), 1);
  EXPECT_EQ(facts.gpus[0].name, "Tesla T4");
  EXPECT_EQ(facts.all_uuids.size(), 2);
  ::unsetenv(kVisibleGpusVariable);
}

TEST_F(DriverFactsTest, WithoutTheManagementLibraryFreeMemoryIsNotKnown) {
  sources_.management_library = "libnvidia-none.so.1";
  const DriverFacts facts = ReadDriverFacts(sources_);
  ASSERT_EQ(facts.gpus.size(), 2);
  EXPECT_EQ(facts.gpus[0].free_bytes, std::nullopt);
  EXPECT_THAT(facts.all_uuids, IsEmpty());
}

// The compatibility package is a newer libcuda.so.1 beside an older module.
TEST_F(DriverFactsTest, AnOlderModuleWithTheCompatibilityPackageCanBeUsed) {
  ::setenv("FAKE_NVIDIA_GPUS", "NVIDIA A100-SXM4-80GB|8.0|79.2|78.9", 1);
  WriteVersion(
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May "
      "12\n");
  ::setenv("FAKE_NVIDIA_CUDA", "12020", 1);
  const GpuReport alone = FindGpus(sources_);
  EXPECT_THAT(
      std::string(alone.usable.message()),
      HasSubstr("or on GPUs of data centers the compatibility package"));
  ::setenv("FAKE_NVIDIA_CUDA", "13000", 1);
  const GpuReport with_package = FindGpus(sources_);
  EXPECT_TRUE(with_package.usable.ok()) << with_package.usable;
  EXPECT_EQ(with_package.driver, "535.183.01");
  ::setenv("FAKE_NVIDIA_INIT", "804", 1);
  EXPECT_THAT(std::string(FindGpus(sources_).usable.message()),
              HasSubstr("does not work with this GPU and the loaded kernel "
                        "module (535.183.01)"));
  ::unsetenv("FAKE_NVIDIA_INIT");
  ::unsetenv("FAKE_NVIDIA_CUDA");
}

TEST_F(DriverFactsTest, AFailureToStartIsNamed) {
  ::setenv("FAKE_NVIDIA_INIT", "999", 1);
  const DriverFacts facts = ReadDriverFacts(sources_);
  ::unsetenv("FAKE_NVIDIA_INIT");
  EXPECT_EQ(facts.init_code, 999);
  EXPECT_EQ(facts.init_name, "CUDA_ERROR_UNKNOWN");
  EXPECT_THAT(facts.gpus, IsEmpty());
}

TEST_F(DriverFactsTest, ALibraryThatIsNotThereIsSaidByName) {
  sources_.cuda_library = "libnvidia-none.so.1";
  EXPECT_THAT(ReadDriverFacts(sources_).library_error,
              HasSubstr("libnvidia-none.so.1"));
}

TEST_F(DriverFactsTest, TheKernelModulesVersionIsFoundInBothOfItsForms) {
  EXPECT_EQ(ReadDriverFacts(sources_).kernel_module, "");
  WriteVersion(
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 "
      "01:44:30 UTC 2024\nGCC version:  gcc version 12.2.0\n");
  EXPECT_EQ(ReadDriverFacts(sources_).kernel_module, "550.54.14");
  WriteVersion(
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  "
      "Release Build  (dvs-builder@U22-I3-AF03-05-1)  Wed Aug 27\n");
  EXPECT_EQ(ReadDriverFacts(sources_).kernel_module, "580.82.07");
  WriteVersion("nothing of the kind\n");
  EXPECT_EQ(ReadDriverFacts(sources_).kernel_module, "");
}

}  // namespace
}  // namespace dapd
