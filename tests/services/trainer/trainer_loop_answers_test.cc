// The answers of a step: drawn once, recalled, refused.

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/trainer/trainer_loop_fixture.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// Wherever the workers leave it, a step is done with the answers that it had.
TEST_F(TrainerLoopTest, AllAnswersOfAStepAreRecalled) {
  Config& config = loaded_.config;
  config.trainer.steps = 1;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % kMaxAttempts >= 2 ? "123" : "5");
  };
  for (const auto source :
       {ReferenceSource::kDual, ReferenceSource::kVerified}) {
    config.rollout.source = source;
    config.run.name = absl::StrCat(NameOf(source), "-whole");
    num_left_ = -1;
    ASSERT_TRUE(Run(0).ok());
    const std::vector<double> losses = MetricOfSteps("loss");
    const auto all = static_cast<int64_t>(rollouts_->keys_.size());
    for (int64_t answers = 1; answers < all; ++answers) {
      config.run.name = absl::StrCat(NameOf(source), "-", answers);
      num_left_ = answers;
      EXPECT_TRUE(absl::IsUnavailable(Run(0)));
      num_left_ = all - answers;
      ASSERT_TRUE(Run(0).ok()) << "it samples no answer again";
      EXPECT_EQ(MetricOfSteps("loss"), losses) << "bit for bit";
    }
  }
}

// Three rows in a batch of eight: some of them three times.
TEST_F(TrainerLoopTest, NoAnswerOfAStepIsDrawnTwice) {
  Config& config = loaded_.config;
  config.trainer.batch_size = 8;
  config.trainer.steps = 2;
  for (const int64_t group_size : {1, 2}) {
    config.rollout.group_size = group_size;
    config.run.name = absl::StrCat("groups-of-", group_size);
    ASSERT_TRUE(Run(0).ok());
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> drawn;
    for (const auto& [id, key] : rollouts_->keys_) {
      drawn.insert({key.step, key.example, key.sample});
    }
    EXPECT_EQ(rollouts_->keys_.size(), 16u);
    EXPECT_EQ(drawn.size(), 16u) << group_size;
  }
}

TEST_F(TrainerLoopTest, AnAnswerOfAnotherPolicyIsRefused) {
  lies_ = true;
  for (const int64_t max_staleness : {0, 1}) {
    const absl::Status status = Run(max_staleness);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("an answer to step 1 was sampled by version 1"));
  }
}

}  // namespace
}  // namespace dapd
