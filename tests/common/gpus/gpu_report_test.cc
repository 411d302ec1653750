#include "common/gpus/gpu_report.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

Gpu H100(const std::string& id) {
  return {.name = "NVIDIA H100 80GB HBM3",
          .uuid = "GPU-" + id,
          .major = 9,
          .minor = 0,
          .total_bytes = 80 * kGiB,
          .free_bytes = 79 * kGiB};
}

Gpu T4(const std::string& id) {
  return {.name = "Tesla T4",
          .uuid = "GPU-" + id,
          .major = 7,
          .minor = 5,
          .total_bytes = 15 * kGiB,
          .free_bytes = 15 * kGiB};
}

// Describes a machine with two H100s and a driver that is new enough.
DriverFacts Sound() {
  return {.kernel_module = "580.82.07",
          .device_nodes = {"nvidia0", "nvidia1"},
          .cuda_version = 13000,
          .gpus = {H100("1a"), H100("1b")},
          .all_uuids = {"GPU-1a", "GPU-1b"}};
}

absl::Status Judged(const DriverFacts& facts) {
  return JudgeGpus(facts).usable;
}

// Judges a setting of CUDA_VISIBLE_DEVICES with the GPUs that CUDA then sees.
absl::Status JudgedWith(const std::string& visible, std::vector<Gpu> seen) {
  DriverFacts facts = Sound();
  facts.visible = visible;
  facts.init_code = seen.empty() ? kCudaNoDevice : 0;
  facts.gpus = std::move(seen);
  return Judged(facts);
}

MATCHER_P2(Says, code, text, "") {
  *result_listener << arg.ToString();
  return arg.code() == code &&
         testing::Matches(HasSubstr(text))(std::string(arg.message()));
}

constexpr auto kNone = absl::StatusCode::kNotFound;
constexpr auto kUnusable = absl::StatusCode::kFailedPrecondition;
constexpr auto kWrong = absl::StatusCode::kInvalidArgument;

TEST(GpuReportTest, AMachineWithGpusAndANewDriverCanBeUsed) {
  const GpuReport report = JudgeGpus(Sound());
  EXPECT_TRUE(report.usable.ok()) << report.usable;
  EXPECT_EQ(report.driver, "580.82.07");
  EXPECT_EQ(report.gpus.size(), 2);
}

TEST(GpuReportTest, DeviceNumbersWithGapsAreFine) {
  DriverFacts facts = Sound();
  facts.device_nodes = {"nvidia4", "nvidia5"};
  EXPECT_TRUE(Judged(facts).ok());
  facts.visible = "0,1";  // CUDA's numbers, whatever the machine's numbers are
  EXPECT_TRUE(Judged(facts).ok());
}

TEST(GpuReportTest, AMachineWithoutADriverHasNone) {
  EXPECT_THAT(Judged({.library_error = "libcuda.so.1: cannot open"}),
              Says(kNone, "no NVIDIA driver on this machine (libcuda.so.1"));
}

TEST(GpuReportTest, AContainerWithoutTheDriversLibraryIsToldWhatBringsItIn) {
  DriverFacts facts = Sound();
  facts.library_error = "libcuda.so.1: cannot open";
  EXPECT_THAT(Judged(facts), Says(kUnusable, "container toolkit"));
  EXPECT_THAT(Judged(facts), Says(kUnusable, "driver 580.82.07"));
}

TEST(GpuReportTest, ADriverThatIsTooOldIsNamedWithTheOneThatIsNeeded) {
  DriverFacts facts = Sound();
  facts.kernel_module = "550.54.14";
  facts.cuda_version = 12040;
  EXPECT_THAT(Judged(facts),
              Says(kUnusable,
                   "the NVIDIA driver 550.54.14 is too old: it is for CUDA "
                   "12.4, and CUDA 13.0 needs driver 580 or newer"));
  facts.cuda_version = 13000;  // by a compatibility package
  EXPECT_TRUE(Judged(facts).ok());
}

TEST(GpuReportTest, WhyADriverDoesNotStartIsSaid) {
  DriverFacts facts = Sound();
  facts.gpus.clear();
  facts.init_code = kCudaDriverMismatch;
  EXPECT_THAT(Judged(facts), Says(kUnusable, "kernel module (580.82.07)"));
  facts.init_code = kCudaNotReady;
  EXPECT_THAT(Judged(facts), Says(kUnusable, "nvidia-fabricmanager"));
  facts.init_code = kCudaNotCompatible;
  EXPECT_THAT(Judged(facts), Says(kUnusable, "CUDA's compatibility package"));
  facts.init_code = 999;
  facts.init_name = "CUDA_ERROR_UNKNOWN";
  EXPECT_THAT(Judged(facts), Says(kUnusable, "CUDA_ERROR_UNKNOWN, code 999"));
  facts.init_code = kCudaNoDevice;
  EXPECT_THAT(Judged(facts), Says(kUnusable, "/dev has nvidia0, nvidia1"));
  facts.device_nodes.clear();
  EXPECT_THAT(Judged(facts),
              Says(kNone, "finds no GPU, and there is none in /dev"));
}

TEST(GpuReportTest, GpusThatAreHiddenOnPurposeAreNoError) {
  EXPECT_THAT(JudgedWith("", {}), Says(kNone, "which hides all GPUs"));
  EXPECT_THAT(JudgedWith("-1", {}), Says(kNone, "which hides all GPUs"));
}

TEST(GpuReportTest, AMixedUpListOfGpusIsRefusedAndTheWrongEntryNamed) {
  EXPECT_THAT(
      JudgedWith("0,9", {H100("1a")}),
      Says(kWrong,
           "CUDA_VISIBLE_DEVICES is '0,9': '9' is not a GPU of this machine, "
           "which has GPUs 0 to 1; CUDA only sees the GPUs listed before it"));
  EXPECT_THAT(JudgedWith("9", {}),
              Says(kWrong, "'9' is not a GPU of this machine"));
  EXPECT_THAT(JudgedWith("0,0", {}), Says(kWrong, "'0' is listed twice"));
  EXPECT_THAT(JudgedWith("0,all", {H100("1a")}),
              Says(kWrong, "'all' is not a GPU"));
  EXPECT_THAT(JudgedWith("0,GPU-1b", {H100("1a")}),
              Says(kWrong, "it mixes numbers and ids"));
  EXPECT_THAT(JudgedWith("GPU-1", {}), Says(kWrong, "the ids of 2 GPUs"));
  EXPECT_THAT(JudgedWith("GPU-2", {}), Says(kWrong, "the ids of 0 GPUs"));
  EXPECT_THAT(JudgedWith("0,\n1", {H100("1a")}).ToString(),
              testing::Not(HasSubstr("\n")));
}

TEST(GpuReportTest, ASoundListOfGpusIsTaken) {
  EXPECT_TRUE(JudgedWith("1", {H100("1b")}).ok());
  EXPECT_TRUE(JudgedWith("GPU-1b,GPU-1a", {H100("1b"), H100("1a")}).ok());
  // One process computes on one part of a GPU, however many parts are named.
  EXPECT_TRUE(JudgedWith("MIG-1c,MIG-1d", {H100("1c")}).ok());
}

TEST(GpuReportTest, ALossThatNoEntryExplainsIsSaidAllTheSame) {
  DriverFacts facts = Sound();
  facts.all_uuids.clear();
  facts.visible = "0,1,2";
  EXPECT_THAT(Judged(facts), Says(kWrong, "CUDA sees only 2 of these 3"));
}

TEST(GpuReportTest, ACardThatIsTooOldIsRefusedOrLeftOut) {
  DriverFacts facts = Sound();
  facts.gpus = {T4("75")};
  EXPECT_THAT(Judged(facts),
              Says(kUnusable,
                   "GPU 0 (Tesla T4) has compute capability 7.5, but at "
                   "least 8.0 (sm_80, an A100's) is needed"));
  facts.gpus = {T4("75"), H100("1a"), H100("1b")};
  EXPECT_THAT(Judged(facts),
              Says(kWrong, "CUDA_VISIBLE_DEVICES=GPU-1a,GPU-1b"));
}

TEST(GpuReportTest, GpusAreDescribedByKind) {
  Gpu busy = H100("1b");
  busy.free_bytes = 12 * kGiB;
  Gpu unknown = T4("75");
  unknown.free_bytes = std::nullopt;
  EXPECT_THAT(
      DescribeGpus({H100("1a"), unknown, busy}),
      ElementsAre("2 of 80.0 GiB, at least 12.0 GiB free: NVIDIA H100 80GB "
                  "HBM3 (sm_90)",
                  "1 of 15.0 GiB, free memory unknown: Tesla T4 "
                  "(sm_75)"));
}

TEST(GpuReportTest, GpusAreNamedAsListedOrByNumber) {
  const GpuReport report = JudgeGpus(Sound());
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  // /dev may have more GPUs than CUDA lists.
  EXPECT_THAT(GpuNames(report), ElementsAre("0", "1"));
  ::setenv("CUDA_VISIBLE_DEVICES", "3,5", 1);
  EXPECT_THAT(GpuNames(report), ElementsAre("3", "5"));
  EXPECT_THAT(GpuNames(GpuReport()), ElementsAre("3", "5"));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(GpuReportTest, WhoComputesOnTheCpuTakesNone) {
  ::setenv("CUDA_VISIBLE_DEVICES", "3,5", 1);
  EXPECT_THAT(GpusToComputeOn(DeviceChoice::kCpu), IsEmpty());
  EXPECT_THAT(GpusToComputeOn(DeviceChoice::kCuda), ElementsAre("3", "5"));
  // Slurm sets this value for a job without GPUs.
  ::setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles", 1);
  EXPECT_THAT(GpusToComputeOn(DeviceChoice::kAuto), IsEmpty());
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace dapd
