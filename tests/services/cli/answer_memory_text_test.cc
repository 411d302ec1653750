#include "services/cli/answer_memory_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/model_shapes.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class AnswerMemoryTextTest : public testing::Test {
 protected:
  AnswerMemoryTextTest() {
    model_.max_positions = 40'960;
    config_.model.device = DeviceChoice::kCuda;
    config_.model.precision = Precision::kBfloat16;
    config_.rollout.max_new_tokens = 38'912;
  }

  Config config_;
  ModelConfig model_ = FourBillion();
};

// 4B has 147,456 bytes a token.
TEST_F(AnswerMemoryTextTest, ItNamesTheAnswersThatFit) {
  config_.rollout.kv_memory_mib = 9 * 1024;
  EXPECT_EQ(AnswerMemoryText(config_, model_, 80, {}),
            "on a GPU of 80 GiB: 9.00 GiB, 65536 tokens: 32 answers of 2048 "
            "tokens, or 1 of 39424");
}

TEST_F(AnswerMemoryTextTest, ShortAnswersAllFit) {
  config_.rollout.max_new_tokens = 1024;
  EXPECT_THAT(AnswerMemoryText(config_, model_, 80, {}),
              HasSubstr("all 32 answers at full length"));
}

TEST_F(AnswerMemoryTextTest, TheGpuThatIsThereCountsWithAllWhoShareIt) {
  GpuReport here;
  here.gpus.push_back({.name = "NVIDIA H100",
                       .uuid = "GPU-1",
                       .total_bytes = int64_t{80} << 30,
                       .free_bytes = int64_t{79} << 30});
  EXPECT_THAT(AnswerMemoryText(config_, model_, 0, here),
              StartsWith("on this machine's GPU of 80 GiB that 3 processes "
                         "share: "));
  config_.model.device = DeviceChoice::kCpu;
  EXPECT_EQ(AnswerMemoryText(config_, model_, 0, here), "");
}

}  // namespace
}  // namespace dapd
