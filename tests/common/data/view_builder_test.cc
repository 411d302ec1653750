#include "common/data/view_builder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class ViewsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = TempPath("model");
    WriteSmallTokenizer(folder);
    auto tokenizer = Tokenizer::Load(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    auto chat = ChatTemplate::Load(folder);
    ASSERT_TRUE(chat.ok()) << chat.status();
    chat_ = *std::move(chat);
    sample_ = {"id", "How many?", "the answer is 123", {}};
    sample_.rollout_ids = *tokenizer_->Encode(
        "the 12312 the th the 123 then \xE2\x88\x9A"
        "2 the");
    sample_.rollout_ids.push_back(kSmallEndId);
  }

  static bool Begins(const View& view, const View& prefix) {
    return prefix.input_ids.size() <= view.input_ids.size() &&
           std::equal(prefix.input_ids.begin(),
                      prefix.input_ids.end(),
                      view.input_ids.begin());
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const ChatTemplate> chat_;
  Sample sample_;
};

TEST_F(ViewsTest, PrefixesAreThoseOfTheViewsOnceAllIsKnown) {
  for (const auto self : {ViewOptions::SelfRollout::kAppend,
                          ViewOptions::SelfRollout::kTemplate}) {
    const ViewBuilder builder(*tokenizer_, *chat_, {.self_rollout = self});
    const Views all = builder.Build(sample_).value();
    for (size_t known = 0; known <= sample_.rollout_ids.size(); ++known) {
      Sample so_far = sample_;
      so_far.rollout_ids.resize(known);
      const auto prefixes = builder.BuildPrefixes(so_far);
      ASSERT_TRUE(prefixes.ok()) << prefixes.status();
      for (int i = 0; i < kNumViews; ++i) {
        const auto name = static_cast<size_t>(i);
        EXPECT_TRUE(Begins(all[name], (*prefixes)[name]))
            << ViewNameString(static_cast<ViewName>(i)) << " after " << known;
      }
    }
  }
}

TEST_F(ViewsTest, AnEvaluationAsksAsTrainingDoesOrPlainly) {
  const ViewBuilder builder(*tokenizer_, *chat_, {});
  const auto prompt = [&](EvaluationForm form) {
    return builder.EvaluationPrompt("How many?", form, /*thinking=*/false)
        .value();
  };
  EXPECT_EQ(prompt(EvaluationForm::kTraining),
            builder.RolloutPrompt("How many?").value());
  const std::string plain =
      tokenizer_->Decode(prompt(EvaluationForm::kPlain), true).value();
  EXPECT_EQ(plain.find("Problem: "), std::string::npos) << plain;
  EXPECT_NE(plain.find("How many?\n\nPlease reason step by step, and put your "
                       "final answer within \\boxed{}."),
            std::string::npos)
      << plain;
}

TEST_F(ViewsTest, PrefixesGrowWithTheRollout) {
  const ViewBuilder builder(*tokenizer_, *chat_, {});
  Sample none = sample_;
  none.rollout_ids.clear();
  const Views prompts = builder.BuildPrefixes(none).value();
  const Views known = builder.BuildPrefixes(sample_).value();
  const auto growth = [&](ViewName name) {
    const auto i = static_cast<size_t>(name);
    return known[i].input_ids.size() - prompts[i].input_ids.size();
  };
  const size_t tokens = sample_.rollout_ids.size();
  EXPECT_EQ(growth(ViewName::kNoneRollout), tokens);
  EXPECT_EQ(growth(ViewName::kCrossRollout), tokens);
  EXPECT_GE(growth(ViewName::kCrossReference), tokens - 12);
  EXPECT_TRUE(
      known[static_cast<size_t>(ViewName::kNoneReference)].input_ids.empty());
}

// The template writes no preamble, and "<no thoughts>" is no part of the
// conversation: the reference's tokens are then tokenized by themselves.
TEST_F(ViewsTest, WithoutAPreambleEachPromptIsItsGenerationPrompt) {
  const ViewBuilder builder(*tokenizer_, *chat_, {});
  const Views views = builder.Build(sample_).value();
  const auto prompt = [&](ViewName name) {
    const View& view = views[static_cast<size_t>(name)];
    return std::vector<int32_t>(view.input_ids.begin(),
                                view.input_ids.begin() + view.scored_from);
  };
  EXPECT_EQ(prompt(ViewName::kNoneReference), prompt(ViewName::kNoneRollout));
  EXPECT_EQ(prompt(ViewName::kSelfReference), prompt(ViewName::kCrossRollout));
  const std::vector<int32_t> scored =
      *tokenizer_->Encode(sample_.reference + "<end>");
  for (const ViewName name : {ViewName::kNoneReference,
                              ViewName::kSelfReference,
                              ViewName::kCrossReference}) {
    const View& view = views[static_cast<size_t>(name)];
    EXPECT_EQ(std::vector<int32_t>(view.input_ids.begin() + view.scored_from,
                                   view.input_ids.end()),
              scored);
  }
}

TEST_F(ViewsTest, PaddingAloneLeavesTheReferencesViews) {
  const ViewBuilder builder(*tokenizer_, *chat_, {.pad_token_id = kSmallEndId});
  const Views whole = builder.Build(sample_).value();
  sample_.rollout_ids = {kSmallEndId, kSmallEndId};
  EXPECT_TRUE(builder.ScoredTokens(sample_.rollout_ids).empty());
  const auto views = builder.Build(sample_);
  ASSERT_TRUE(views.ok()) << views.status();
  for (int i = 0; i < kNumViews; ++i) {
    const auto name = static_cast<ViewName>(i);
    const View& view = (*views)[static_cast<size_t>(i)];
    EXPECT_EQ(view.scored_count == 0,
              CompletionOf(name) == Completion::kRollout)
        << ViewNameString(name);
    if (!NeedsRollout(name)) {
      EXPECT_EQ(view, whole[static_cast<size_t>(i)]);
    }
  }
  const std::string shown = *tokenizer_->Decode(
      (*views)[static_cast<size_t>(ViewName::kCrossReference)].input_ids,
      /*skip_special_tokens=*/false);
  EXPECT_NE(shown.find("Solution Begin ===\n\n=== Reference"),
            std::string::npos)
      << "an empty text is shown";

  sample_.rollout_ids.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(builder.Build(sample_).status()));
}

TEST_F(ViewsTest, PromptsBeforeARolloutAreCutOnTheRight) {
  const ViewBuilder uncut(*tokenizer_, *chat_, {});
  const ViewBuilder cut(
      *tokenizer_, *chat_, {.max_sampler_prompt = 20, .max_prompt = 50});
  const Views whole = uncut.Build(sample_).value();
  const Views views = cut.Build(sample_).value();
  EXPECT_EQ(cut.RolloutPrompt(sample_.problem)->size(), 20u);
  const auto tokens = static_cast<int64_t>(sample_.rollout_ids.size());
  for (const auto& [name, prompt] :
       {std::pair{ViewName::kNoneRollout, int64_t{20}},
        {ViewName::kSelfRollout, 20 + tokens},
        {ViewName::kCrossRollout, int64_t{50}}}) {
    const View& view = views[static_cast<size_t>(name)];
    const View& before = whole[static_cast<size_t>(name)];
    EXPECT_EQ(view.scored_from, prompt) << ViewNameString(name);
    EXPECT_EQ(view.scored_count, before.scored_count);
    const int64_t kept = std::min<int64_t>(prompt, 20);
    EXPECT_TRUE(std::equal(view.input_ids.begin(),
                           view.input_ids.begin() + kept,
                           before.input_ids.begin()));
  }
  for (const ViewName name : {ViewName::kNoneReference,
                              ViewName::kSelfReference,
                              ViewName::kCrossReference}) {
    EXPECT_EQ(views[static_cast<size_t>(name)],
              whole[static_cast<size_t>(name)]);
  }
  const Views beginnings = cut.BuildPrefixes(sample_).value();
  for (int i = 0; i < kNumViews; ++i) {
    EXPECT_TRUE(Begins(views[static_cast<size_t>(i)],
                       beginnings[static_cast<size_t>(i)]));
  }
}

}  // namespace
}  // namespace dapd
