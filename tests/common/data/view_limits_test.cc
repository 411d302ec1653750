#include "common/data/view_limits.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/data/self_teacher.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kContext = 100'000;

class ViewLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteSmallTokenizer(folder_);
    config_.data.path = "rows.jsonl";
    config_.rollout.max_new_tokens = 20;
    config_.objective.max_reference_tokens = 30;
    for (const char* id : {"a", "b", "c"}) {
      data_.problems.push_back({id, "How many?", "12", "12"});
      data_.problems.back().where = std::string("rows.jsonl:") + id;
    }
    data_.digest = DigestOf(data_.problems);
    MakeLong("b");
  }

  void MakeLong(const std::string& id) {
    for (Problem& problem : data_.problems) {
      if (problem.id == id) problem.solution = std::string(3000, 'x');
    }
  }

  TextPipeline Text() const {
    return LoadTextPipeline(folder_, MakeViewOptions(config_), kSmallEndId)
        .value();
  }

  // Returns the tokens of the longest view of any row with an answer of full
  // length.
  int64_t Longest(const std::vector<ViewName>& names) const {
    const TextPipeline text = Text();
    const std::vector<int32_t> answer(
        static_cast<size_t>(config_.rollout.max_new_tokens), 72);
    size_t longest = 0;
    for (const Problem& problem : data_.problems) {
      Sample sample = {"", problem.problem, problem.solution, answer};
      if (config_.rollout.source != ReferenceSource::kGiven)
        sample.reference_ids = answer;
      const Views views = text.views->Build(sample).value();
      for (const ViewName name : names) {
        longest = std::max(longest,
                           views[static_cast<size_t>(name)].input_ids.size());
      }
    }
    return static_cast<int64_t>(longest);
  }

  absl::Status Apply(int64_t context = kContext) {
    return ApplyViewLimits(config_, context, Text(), &data_);
  }

  const std::string folder_ = TempPath("model");
  Config config_;
  Dataset data_;
};

const std::vector<ViewName> kAllViews = {ViewName::kNoneRollout,
                                         ViewName::kSelfRollout,
                                         ViewName::kCrossRollout,
                                         ViewName::kNoneReference,
                                         ViewName::kSelfReference,
                                         ViewName::kCrossReference};

TEST_F(ViewLimitsTest, TheLimitIsThatOfTheLongestViewToTheToken) {
  for (const bool append : {true, false}) {
    config_.objective.self_rollout =
        append ? SelfRollout::kAppend : SelfRollout::kTemplate;
    for (const int64_t answer : {20, 4000}) {
      config_.rollout.max_new_tokens = answer;
      const Dataset before = data_;
      const int64_t longest = Longest(kAllViews);
      config_.trainer.pack_tokens = longest;
      ASSERT_TRUE(Apply().ok()) << Apply();
      EXPECT_EQ(data_.problems.size(), before.problems.size());
      config_.trainer.pack_tokens = longest - 1;
      EXPECT_EQ(ExitCodeOf(Apply()), ExitCode::kData);
      config_.trainer.pack_tokens = longest;
      EXPECT_TRUE(Apply(longest).ok());
      EXPECT_FALSE(Apply(longest - 1).ok());
    }
  }
}

TEST_F(ViewLimitsTest, ARowThatIsTooLongIsNamedWithItsLengthAndTheLimit) {
  config_.trainer.pack_tokens = 2500;
  const absl::Status status = Apply();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rows.jsonl: 1 of 3 rows"),
                    HasSubstr("trainer.pack_tokens allows 2500 in a pass"),
                    HasSubstr("data.on_bad_row: skip"),
                    HasSubstr("rows.jsonl:b: problem 'b': ")));
  EXPECT_EQ(data_.problems.size(), 3u);
  EXPECT_THAT(std::string(Apply(/*context=*/2400).message()),
              HasSubstr("the model's context is 2400"));
}

TEST_F(ViewLimitsTest, WhatIsSkippedIsLeftOutCountedAndNotInTheDigest) {
  config_.trainer.pack_tokens = 2500;
  config_.data.on_bad_row = OnBadRow::kSkip;
  data_.skipped_rows = 2;
  ASSERT_TRUE(Apply().ok());
  ASSERT_EQ(data_.problems.size(), 2u);
  EXPECT_EQ(data_.problems[0].id, "a");
  EXPECT_EQ(data_.problems[1].id, "c");
  EXPECT_EQ(data_.skipped_rows, 3);
  EXPECT_EQ(data_.digest, DigestOf(data_.problems));

  MakeLong("a");
  MakeLong("c");
  EXPECT_THAT(std::string(Apply().message()), HasSubstr("2 of 2 rows"))
      << "nothing would be left";
}

TEST_F(ViewLimitsTest, OnlyViewsThatATermReadsCount) {
  config_.objective.terms = {
      {.name = "inference",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kBase, ViewName::kSelfRollout},
       .weight = 1.0}};
  config_.trainer.pack_tokens =
      Longest({ViewName::kNoneRollout, ViewName::kSelfRollout});
  EXPECT_TRUE(Apply().ok()) << Apply();
  --config_.trainer.pack_tokens;
  EXPECT_FALSE(Apply().ok());
}

// Answers are shorter than a prompt, a reference and the cut of a prompt, and
// longer than each of these.
TEST_F(ViewLimitsTest, EachViewIsMeasuredToTheToken) {
  config_.prompts.privileged = "{problem} {reference}, or {reference}";
  for (const auto source : {ReferenceSource::kGiven, ReferenceSource::kDual}) {
    for (const auto self : {SelfRollout::kAppend, SelfRollout::kTemplate}) {
      for (const int64_t answer : {20, 4000}) {
        for (const int64_t cut : {5000, 100'000}) {
          for (const ViewName view : kAllViews) {
            config_.rollout.source = source;
            config_.objective.self_rollout = self;
            config_.rollout.max_new_tokens = answer;
            config_.data.max_prompt_tokens = cut;
            config_.objective.terms = {
                {.name = "a",
                 .student = view,
                 .target = TeacherPass{WeightSet::kBase, view},
                 .weight = 1.0}};
            const int64_t longest = Longest({view});
            config_.trainer.pack_tokens = longest;
            EXPECT_TRUE(Apply().ok()) << Apply();
            config_.trainer.pack_tokens = longest - 1;
            EXPECT_FALSE(Apply().ok())
                << ViewNameString(view) << ", " << NameOf(source) << ", "
                << NameOf(self) << ", answers of " << answer
                << ", prompts cut to " << cut;
          }
        }
      }
    }
  }
}

TEST_F(ViewLimitsTest, APromptThatIsCutIsAsLongAsItsCut) {
  config_.objective.terms = {
      {.name = "opsd",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kBase, ViewName::kCrossRollout},
       .weight = 1.0}};
  config_.data.max_prompt_tokens = 1000;
  config_.trainer.pack_tokens = 1020;
  EXPECT_TRUE(Apply().ok()) << Apply();
  config_.trainer.pack_tokens = 1019;
  EXPECT_FALSE(Apply().ok());
}

// Returns the tokens of a self-teacher's view of an answer of 400 tokens. The
// view shows a verdict and, if it is not null, a sibling.
int64_t ToldTokens(const TextPipeline& text, const std::string* sibling) {
  Sample sample = {"", "How many?", "12", std::vector<int32_t>(400, 72)};
  if (sibling != nullptr) sample.context.sibling = *sibling;
  sample.context.feedback = "not " + std::string(392, 'x');
  const Views views = text.views->Build(sample).value();
  const View& told = views[static_cast<size_t>(ViewName::kSiblingRollout)];
  return static_cast<int64_t>(told.input_ids.size());
}

void SetSelfTeacher(int64_t group_size, Config* config) {
  config->objective.preset = "sdpo";
  config->rollout.group_size = group_size;
  config->rollout.max_new_tokens = 400;
  config->objective.sdpo.feedback = FeedbackRule::kAlways;
  config->prompts.feedback_wrong = "not {answer}";
  config->prompts.feedback_unboxed = "";
  config->prompts.feedback_truncated = "";
}

// A verdict quotes the wrong result, which may be a whole answer.
TEST_F(ViewLimitsTest, ASelfTeacherIsToldOfTwoAnswers) {
  SetSelfTeacher(2, &config_);
  const std::string sibling(400, 'x');
  config_.trainer.pack_tokens = ToldTokens(Text(), &sibling) - 1;
  EXPECT_FALSE(Apply().ok());
  config_.trainer.pack_tokens += 100;
  EXPECT_TRUE(Apply().ok()) << Apply();
  config_.objective.sdpo.feedback = FeedbackRule::kNever;
  config_.trainer.pack_tokens -= 400;
  EXPECT_TRUE(Apply().ok()) << Apply();
}

TEST_F(ViewLimitsTest, WithoutAGroupASelfTeacherIsToldOfTheVerdictOnly) {
  SetSelfTeacher(1, &config_);
  config_.trainer.pack_tokens = ToldTokens(Text(), nullptr) - 1;
  EXPECT_FALSE(Apply().ok());
  config_.trainer.pack_tokens += 100;
  EXPECT_TRUE(Apply().ok()) << Apply();
}

// NFC makes these letters up to three times as long.
TEST_F(ViewLimitsTest, TextThatGrowsWhenComposedIsMeasuredAsItWillBe) {
  data_.problems[1].solution.clear();
  for (int i = 0; i < 500; ++i) data_.problems[1].solution += "\xE0\xA5\x98";
  config_.trainer.pack_tokens = Longest(kAllViews) - 1;
  EXPECT_FALSE(Apply().ok());
}

// An answer in place of the reference is scored only up to a reference's limit,
// but all of it is sampled.
TEST_F(ViewLimitsTest, WhatIsSampledFitsTheContextAlsoWhereNoTermReadsIt) {
  config_.objective.preset = "sft";
  config_.rollout.max_new_tokens = 200;
  const auto prompt = static_cast<int64_t>(
      Text().views->RolloutPrompt(data_.problems[0].problem).value().size());
  config_.rollout.source = ReferenceSource::kVerified;
  EXPECT_TRUE(Apply(prompt + 200).ok()) << Apply(prompt + 200);
  const absl::Status status = Apply(prompt + 199);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rows.jsonl:a: problem 'a': the sampler's prompt and "
                        "answer have up to " +
                        std::to_string(prompt + 200) + " tokens"));
  config_.rollout.source = ReferenceSource::kGiven;
  EXPECT_TRUE(Apply(prompt + 199).ok()) << "nothing is sampled";
}

// Counts what a template renders.
class CountingTemplate : public ChatTemplate {
 public:
  CountingTemplate(std::unique_ptr<const ChatTemplate> counted,
                   bool supports_thinking)
      : counted_(std::move(counted)), supports_thinking_(supports_thinking) {}

  absl::StatusOr<std::string> Render(
      const std::vector<ChatMessage>& messages,
      const ChatRenderOptions& options) const override {
    ++renders_;
    return counted_->Render(messages, options);
  }
  bool supports_thinking() const override { return supports_thinking_; }
  int64_t renders() const { return renders_; }

 private:
  const std::unique_ptr<const ChatTemplate> counted_;
  const bool supports_thinking_;
  mutable int64_t renders_ = 0;
};

// The template, the length and the prompts of a row are checked one after
// another, and all of them ask about its conversation.
TEST_F(ViewLimitsTest, AConversationIsRenderedOnceForAllChecks) {
  data_.problems[1].solution = "12";
  for (Problem& problem : data_.problems) {
    RowMaterial material;
    material.before = {{"user", "Hello."},
                       {"assistant", "Hello, " + problem.id}};
    problem.material = std::make_shared<const RowMaterial>(material);
  }
  const auto renders = [&](bool supports_thinking, size_t rows) {
    TextPipeline text = Text();
    auto counting = std::make_unique<CountingTemplate>(
        std::move(text.chat_template), supports_thinking);
    const CountingTemplate& counted = *counting;
    text.views = std::make_unique<ViewBuilder>(
        *text.tokenizer, counted, MakeViewOptions(config_));
    text.chat_template = std::move(counting);
    Dataset some = data_;
    some.problems.resize(rows);
    const absl::Status status = ApplyViewLimits(config_, kContext, text, &some);
    EXPECT_TRUE(status.ok()) << status;
    return counted.renders();
  };
  // With thinking, without it, and with an answer.
  EXPECT_EQ(renders(true, 3) - renders(true, 1), 2 * 3);
  EXPECT_EQ(renders(false, 3) - renders(false, 1), 2 * 2);
}

// The small tokenizer's "<end>" is the last of 262 ids, and occurs in every
// view.
TEST_F(ViewLimitsTest, TokensThatTheModelDoesNotHaveAreRefused) {
  TextPipeline text = Text();
  text.vocab_size = kSmallEndId;
  const absl::Status all = ApplyViewLimits(config_, kContext, text, &data_);
  EXPECT_EQ(ExitCodeOf(all), ExitCode::kData);
  EXPECT_THAT(
      std::string(all.message()),
      AllOf(HasSubstr("rows.jsonl: 3 of 3 rows cannot be trained"),
            HasSubstr("whose size is 261"),
            HasSubstr("rows.jsonl:a: problem 'a': '<end>' has id 261")));
  text.vocab_size = kSmallEndId + 1;
  EXPECT_TRUE(ApplyViewLimits(config_, kContext, text, &data_).ok());
}

TEST_F(ViewLimitsTest, ARowWithATokenThatTheModelDoesNotHaveIsABadRow) {
  AddToSmallTokenizer(folder_, "<new>");
  TextPipeline text = Text();
  text.vocab_size = kSmallEndId + 1;
  data_.problems[1].solution = "a <new> one";
  config_.evaluation.path = "held_out.jsonl";
  EXPECT_TRUE(ApplyHeldOutLimits(config_, kContext, text, &data_).ok())
      << "which is not asked with its solution";
  EXPECT_THAT(
      std::string(ApplyViewLimits(config_, kContext, text, &data_).message()),
      AllOf(HasSubstr("rows.jsonl: 1 of 3 rows"),
            HasSubstr("rows.jsonl:b: problem 'b': '<new>' has id 262")));
  data_.problems[2].problem = "a <new> one";
  EXPECT_THAT(
      std::string(
          ApplyHeldOutLimits(config_, kContext, text, &data_).message()),
      AllOf(HasSubstr("held_out.jsonl: 1 of 3 rows cannot be evaluated"),
            HasSubstr("rows.jsonl:c: problem 'c': '<new>' has id 262")));
  config_.data.on_bad_row = OnBadRow::kSkip;
  ASSERT_TRUE(ApplyViewLimits(config_, kContext, text, &data_).ok());
  ASSERT_EQ(data_.problems.size(), 1u);
  EXPECT_EQ(data_.problems[0].id, "a");
}

TEST_F(ViewLimitsTest, ATokenThatOnlyTheSamplerReadsIsCompared) {
  AddToSmallTokenizer(folder_, "<new>");
  config_.prompts.none = "<new> {problem}";
  config_.objective.terms = {
      {.name = "privileged",
       .student = ViewName::kSelfReference,
       .target = TeacherPass{WeightSet::kBase, ViewName::kSelfReference},
       .weight = 1.0}};
  TextPipeline text = Text();
  text.vocab_size = kSmallEndId + 1;
  EXPECT_TRUE(ApplyViewLimits(config_, kContext, text, &data_).ok())
      << "nothing is sampled";
  config_.rollout.source = ReferenceSource::kDual;
  EXPECT_THAT(
      std::string(ApplyViewLimits(config_, kContext, text, &data_).message()),
      HasSubstr("3 of 3 rows"));
}

TEST_F(ViewLimitsTest, AHeldOutPromptLeavesRoomForTheLongestAnswer) {
  config_.evaluation.path = "held_out.jsonl";
  data_.problems[1].problem = std::string(500, 'x');
  const TextPipeline text = Text();
  const auto apply = [&](int64_t context) {
    return ApplyHeldOutLimits(config_, context, text, &data_);
  };
  for (const auto prompt :
       {EvaluationForm::kTraining, EvaluationForm::kPlain}) {
    config_.evaluation.prompt = prompt;
    for (const int64_t answer : {0, 50}) {  // 0 stands for
                                            // rollout.max_new_tokens
      config_.evaluation.max_new_tokens = answer;
      const auto tokens = static_cast<int64_t>(
          text.views
              ->EvaluationPrompt(
                  data_.problems[1].problem, prompt, /*thinking=*/false)
              .value()
              .size());
      const int64_t needed = tokens + (answer > 0 ? answer : 20);
      EXPECT_TRUE(apply(needed).ok()) << apply(needed);
      const absl::Status status = apply(needed - 1);
      EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
      EXPECT_THAT(
          std::string(status.message()),
          AllOf(HasSubstr("held_out.jsonl: 1 of 3 rows cannot be evaluated"),
                HasSubstr("rows.jsonl:b: problem 'b': the prompt has " +
                          std::to_string(tokens) + " tokens"),
                HasSubstr("evaluation.max_new_tokens")));
      EXPECT_EQ(data_.problems.size(), 3u);
    }
  }
  config_.data.on_bad_row = OnBadRow::kSkip;
  ASSERT_TRUE(apply(400).ok()) << apply(400);
  ASSERT_EQ(data_.problems.size(), 2u);
  EXPECT_EQ(data_.problems[1].id, "c");
  EXPECT_EQ(data_.skipped_rows, 1);
  EXPECT_EQ(data_.digest, DigestOf(data_.problems));
}

}  // namespace
}  // namespace dapd
