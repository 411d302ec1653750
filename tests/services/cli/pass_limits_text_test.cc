#include "services/cli/pass_limits_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class PassLimitsTextTest : public testing::Test {
 protected:
  PassLimitsTextTest() {
    model_.vocab_size = 1000;
    model_.hidden_size = 1024;
    model_.intermediate_size = 4096;
    model_.num_layers = 8;
    model_.num_heads = 8;
    model_.num_kv_heads = 8;
    model_.head_dim = 128;
    config_.model.device = DeviceChoice::kCpu;
  }

  Config config_;
  ModelConfig model_;
};

TEST_F(PassLimitsTextTest, ACpuHasItsFixedSizes) {
  EXPECT_THAT(PassLimitsText(config_, model_, 0, {}).value(),
              HasSubstr("1.00 GiB of activations"));
}

TEST_F(PassLimitsTextTest, AGpuThatIsGivenIsFilled) {
  const std::string text = PassLimitsText(config_, model_, 48, {}).value();
  EXPECT_THAT(text, StartsWith("on a GPU of 48 GiB: packs of 16384 tokens"));
  EXPECT_THAT(text, HasSubstr("(8 of 8 layers"));
  config_.run.gpu_processes = 3;
  EXPECT_THAT(PassLimitsText(config_, model_, 48, {}).value(),
              StartsWith("on a GPU of 48 GiB that 3 processes share: "));
}

GpuReport Machine(int64_t gpus, double gib, double free_gib) {
  GpuReport report;
  for (int64_t i = 0; i < gpus; ++i) {
    report.gpus.push_back(
        {.name = "NVIDIA H100",
         .uuid = "GPU-1",
         .major = 9,
         .total_bytes = static_cast<int64_t>(gib * (1 << 30)),
         .free_bytes = static_cast<int64_t>(free_gib * (1 << 30))});
  }
  return report;
}

TEST_F(PassLimitsTextTest, TheGpuThatIsThereCountsWithAllWhoShareIt) {
  config_.model.device = DeviceChoice::kCuda;
  const auto on = [&](const GpuReport& report) {
    return PassLimitsText(config_, model_, 0, report).value();
  };
  EXPECT_THAT(on(Machine(3, 79.2, 78.9)),
              StartsWith("on this machine's GPU of 79.2 GiB: packs of "));
  // The processes are a trainer, a rollout worker and a teacher.
  EXPECT_THAT(on(Machine(1, 79.2, 78.9)),
              StartsWith("on this machine's GPU of 79.2 GiB that 3 processes "
                         "share: packs of "));
  config_.run.gpu_processes = 2;
  EXPECT_THAT(on(Machine(1, 79.2, 78.9)), HasSubstr("that 2 processes share"));
  EXPECT_THAT(on(Machine(3, 79.2, 0.5)),
              StartsWith("none on this machine's GPU of 79.2 GiB that 2 "
                         "processes share: the trainer needs"));
  // A size that the user gives describes another machine's GPU.
  config_.run.gpu_processes = 1;
  EXPECT_THAT(
      PassLimitsText(config_, model_, 48, Machine(1, 79.2, 78.9)).value(),
      StartsWith("on a GPU of 48 GiB: "));
  // A GPU that cannot be used does not count.
  GpuReport broken = Machine(1, 79.2, 78.9);
  broken.usable = absl::FailedPreconditionError("the driver is too old");
  EXPECT_THAT(on(broken), StartsWith("on a GPU of 80 GiB: "));
}

TEST_F(PassLimitsTextTest, OnlyASizeThatIsGivenIsAnError) {
  config_.model.device = DeviceChoice::kCuda;
  config_.trainer.pack_tokens = 1'000'000;
  config_.rollout.max_new_tokens = 900'000;
  EXPECT_THAT(PassLimitsText(config_, model_, 0, {}).value(),
              StartsWith("none on a GPU of 80 GiB (--gpu-gib): the trainer "
                         "needs"));
  EXPECT_EQ(ExitCodeOf(PassLimitsText(config_, model_, 80, {}).status()),
            ExitCode::kConfig);
}

}  // namespace
}  // namespace dapd
