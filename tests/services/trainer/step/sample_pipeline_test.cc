#include "services/trainer/step/sample_pipeline.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/data/view_builder.h"
#include "common/tensor/host_tensor.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/fakes/instant_workers.h"
#include "tests/services/trainer/trainer_loop_fixture.h"

namespace dapd {
namespace {

using SamplePipelineTest = TrainerLoopTest;

TEST_F(SamplePipelineTest, WithALagTeachersHearOfNoAnswerBeforeItIsWhole) {
  ASSERT_TRUE(loaded_.config.teacher.streaming);
  ASSERT_TRUE(Run(1).ok());
  EXPECT_FALSE(rollouts_->listened_);
  EXPECT_EQ(teachers_->prefixes_, 0);
}

// Counts the texts that it encodes.
class CountingTokenizer : public Tokenizer {
 public:
  explicit CountingTokenizer(const Tokenizer& inner) : inner_(inner) {}
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const override {
    ++num_encoded_;
    return inner_.Encode(text);
  }
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids,
                                     bool skip_special_tokens) const override {
    return inner_.Decode(ids, skip_special_tokens);
  }
  int32_t size() const override { return inner_.size(); }
  int32_t TokenId(absl::string_view token) const override {
    return inner_.TokenId(token);
  }
  std::optional<std::string> BytesOf(int32_t id) const override {
    return inner_.BytesOf(id);
  }
  std::vector<std::pair<int32_t, int32_t>> Merges() const override {
    return inner_.Merges();
  }
  bool IsSpecial(int32_t id) const override { return inner_.IsSpecial(id); }
  bool IsAdded(int32_t id) const override { return inner_.IsAdded(id); }
  std::optional<int32_t> pad_id() const override { return inner_.pad_id(); }
  std::optional<int32_t> end_id() const override { return inner_.end_id(); }

  const Tokenizer& inner_;
  mutable std::atomic<int64_t> num_encoded_ = 0;
};

TEST_F(SamplePipelineTest, EachTextOfASampleIsTokenizedOnce) {
  const CountingTokenizer counting(*text_.tokenizer);
  text_.views = std::make_unique<const ViewBuilder>(
      counting, *text_.chat_template, ViewOptions{});
  const Problem& problem = data_.problems[0];
  ASSERT_TRUE(
      text_.views->Build({"", problem.problem, problem.solution, answer_})
          .ok());
  const int64_t of_views = counting.num_encoded_;
  ASSERT_TRUE(text_.views->RolloutPrompt(problem.problem).ok());
  const int64_t of_prompt = counting.num_encoded_ - of_views;

  loaded_.config.teacher.streaming = false;
  loaded_.config.trainer.steps = 1;
  counting.num_encoded_ = 0;
  ASSERT_TRUE(Run(0).ok());
  // The tokenizer encodes the prompt of the workers' probe and two samples.
  EXPECT_EQ(counting.num_encoded_, of_prompt + 2 * (of_prompt + of_views));
}

// Serves steps that need no answers.
class NoRollouts : public RolloutClient {
 public:
  void SetWeights(PolicyUpdates) override {}
  void Listen(OnTokens) override {}
  void Submit(RolloutTask) override {}
  absl::StatusOr<std::optional<RolloutResult>> NextWithin(
      absl::Duration) override {
    return absl::UnavailableError("no worker is left");
  }
  std::vector<WorkerState> Workers() const override { return {}; }
  void Shutdown() override {}
};

// Returns results with an additional tensor that nobody keeps.
class WatchedTeachers : public InstantTeachers {
 public:
  WatchedTeachers() : InstantTeachers(/*hidden_size=*/4) {}
  absl::StatusOr<std::optional<ScoreResult>> NextWithin(
      absl::Duration timeout) override {
    EXPECT_TRUE(last_.expired()) << "the result before is still held";
    auto result = InstantTeachers::NextWithin(timeout);
    HostTensor& unread =
        result.value()->views[ViewName::kNoneReference]["hidden"];
    unread = HostTensor::Allocate(DType::kFloat32, {1, 4}).value();
    last_ = unread.data;
    ++num_taken_;
    return result;
  }

  std::weak_ptr<char> last_;
  int num_taken_ = 0;
};

TEST_F(SamplePipelineTest, AResultIsLetGoBeforeTheNextIsTaken) {
  NoRollouts rollouts;
  WatchedTeachers teachers;
  PipelineOptions options;
  options.scores.passes = {{WeightSet::kBase, ViewName::kSelfReference}};
  SamplePipeline pipeline(
      rollouts, teachers, *text_.views, *text_.tokenizer, options);
  std::vector<PipelineInput> inputs;
  for (const Problem& problem : data_.problems) inputs.push_back({&problem});
  auto batch = pipeline.Submit(inputs, {}, {.needs_answers = false});
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_TRUE(pipeline.Start(*std::move(batch), {}, /*with_scores=*/true).ok());
  ASSERT_TRUE(pipeline.AcceptScores(absl::ZeroDuration()).ok());
  EXPECT_EQ(teachers.num_taken_, 3);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(pipeline.StateOf(i), SampleState::kScored);
  }
}

}  // namespace
}  // namespace dapd
