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
    config_.model.device = "cpu";
  }

  Config config_;
  ModelConfig model_;
};

TEST_F(PassLimitsTextTest, ACpuHasItsFixedSizes) {
  EXPECT_THAT(PassLimitsText(config_, model_, 0).value(),
              HasSubstr("1.00 GiB of activations"));
}

TEST_F(PassLimitsTextTest, AGpuThatIsGivenIsFilled) {
  const std::string text = PassLimitsText(config_, model_, 48).value();
  EXPECT_THAT(text, StartsWith("on a GPU of 48 GiB: packs of 16384 tokens"));
  EXPECT_THAT(text, HasSubstr("(8 of 8 layers"));
  config_.run.gpu_processes = 3;
  EXPECT_THAT(PassLimitsText(config_, model_, 48).value(),
              StartsWith("on a GPU of 48 GiB that 3 processes share: "));
}

TEST_F(PassLimitsTextTest, OnlyASizeThatIsGivenIsAnError) {
  config_.model.device = "cuda";
  config_.trainer.pack_tokens = 1'000'000;
  config_.rollout.max_new_tokens = 900'000;
  EXPECT_THAT(PassLimitsText(config_, model_, 0).value(),
              StartsWith("none on a GPU of 80 GiB (--gpu-gib): the trainer "
                         "needs"));
  EXPECT_EQ(ExitCodeOf(PassLimitsText(config_, model_, 80).status()),
            ExitCode::kConfig);
}

}  // namespace
}  // namespace dapd
