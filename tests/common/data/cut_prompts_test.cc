#include "common/data/cut_prompts.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CutPromptsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteSmallTokenizer(folder_);
    config_.data.path = "rows.jsonl";
    config_.rollout.max_new_tokens = 20;
    data_.problems = {{"a", "How many?", "12", "12"},
                      {"b", std::string(500, 'x'), "12", "12"},
                      {"c", "How many?", std::string(3000, 'x'), "12"}};
  }

  TextPipeline Text() const {
    return LoadTextPipeline(folder_, MakeViewOptions(config_), kSmallEndId)
        .value();
  }

  // Returns the number of tokens of the uncut sampler's prompt.
  int64_t PromptTokens(const std::string& problem) const {
    return static_cast<int64_t>(
        Text()
            .views
            ->EvaluationPrompt(
                problem, EvaluationForm::kTraining, /*thinking=*/false)
            .value()
            .size());
  }

  absl::Status Check() const {
    const TextPipeline text = Text();
    MaterialMeter materials(*text.views);
    return CheckCutPrompts(config_, text, data_, materials);
  }

  // Returns the warnings.
  std::string Warnings() const {
    testing::internal::CaptureStderr();
    const absl::Status status = Check();
    EXPECT_TRUE(status.ok()) << status;
    return testing::internal::GetCapturedStderr();
  }

  const std::string folder_ = TempPath("model");
  Config config_;
  Dataset data_;
};

TEST_F(CutPromptsTest, RowsWhoseSamplerIsNotAskedToTheEndAreCounted) {
  config_.objective.terms = {
      {.name = "inference",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kBase, ViewName::kSelfRollout},
       .weight = 1.0}};
  const int64_t needed = PromptTokens(data_.problems[1].problem) + 20;
  config_.data.max_prompt_tokens = needed;
  EXPECT_THAT(Warnings(), IsEmpty());
  config_.data.max_prompt_tokens = needed - 1;
  EXPECT_THAT(Warnings(),
              AllOf(HasSubstr("rows.jsonl: 1 of 3 rows: the sampler's prompt "
                              "is cut to " +
                              std::to_string(needed - 21) + " tokens"),
                    HasSubstr("raise data.max_prompt_tokens (" +
                              std::to_string(needed - 1) +
                              ", which holds an answer of "
                              "rollout.max_new_tokens as well) to " +
                              std::to_string(needed))));
  // This prompt is shorter than the previous one, and is cut, too.
  data_.problems.push_back({"d", std::string(490, 'x'), "12", "12"});
  config_.data.max_prompt_tokens = needed - 20;
  EXPECT_THAT(Warnings(),
              AllOf(HasSubstr("2 of 4 rows"),
                    HasSubstr(") to " + std::to_string(needed))));
}

TEST_F(CutPromptsTest, APromptThatShowsALongReferenceIsOneIfATermReadsIt) {
  config_.data.max_prompt_tokens = 2000;
  EXPECT_THAT(Warnings(),
              AllOf(HasSubstr("1 of 3 rows: the prompt of cross_rollout is cut "
                              "to 2000 tokens"),
                    HasSubstr("raise data.max_prompt_tokens (2000) to "),
                    Not(HasSubstr("sampler"))));
  config_.objective.preset = "sdft";
  EXPECT_THAT(Warnings(),
              AllOf(HasSubstr("the prompt of demonstration_rollout"),
                    HasSubstr("and loses its end")));
  config_.prompts.max_tokens = 1000;
  config_.prompts.truncation_side = TruncationSide::kLeft;
  EXPECT_THAT(Warnings(),
              AllOf(HasSubstr("is cut to 1000 tokens and loses its beginning"),
                    HasSubstr("raise prompts.max_tokens (1000) to ")));
  config_.objective.preset = "sft";
  EXPECT_THAT(Warnings(), IsEmpty());
}

TEST_F(CutPromptsTest, AReferenceThatIsNotShownIsNotMeasured) {
  config_.data.max_prompt_tokens = 2000;
  config_.rollout.source = ReferenceSource::kDual;
  EXPECT_THAT(Warnings(), IsEmpty());
}

TEST_F(CutPromptsTest, PromptsThatAreCutWhateverTheProblemAreRefused) {
  const int64_t frame = PromptTokens("");
  config_.data.max_prompt_tokens = frame + 20 - 1;
  const absl::Status status = Check();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("the sampler's prompt has " + std::to_string(frame) +
                      " tokens around the problem alone and would be cut to " +
                      std::to_string(frame - 1)),
            HasSubstr("to " + std::to_string(frame + 20) + " and")));
  config_.data.max_prompt_tokens = frame + 20;
  EXPECT_THAT(std::string(Check().message()),
              HasSubstr("the prompt of cross_rollout has"))
      << "the sampler's just fits";
}

}  // namespace
}  // namespace dapd
