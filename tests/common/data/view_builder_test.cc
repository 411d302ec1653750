#include "common/data/view_builder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
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

  static Views PrefixesOf(const ViewBuilder& builder, const Sample& sample) {
    GrowingViews prefixes =
        builder.StartViews(sample.problem, sample.reference).value();
    EXPECT_TRUE(prefixes.Grow(sample.rollout_ids).ok());
    return prefixes.views();
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const ChatTemplate> chat_;
  Sample sample_;
};

TEST_F(ViewsTest, PrefixesAreThoseOfTheViewsOnceAllIsKnown) {
  using enum TruncationSide;
  for (const auto self : {SelfRollout::kAppend, SelfRollout::kTemplate}) {
    for (const auto& [max_prompt, side] :
         {std::pair{kUncut, kRight}, {50, kRight}, {50, kLeft}}) {
      const ViewBuilder builder(*tokenizer_,
                                *chat_,
                                {.self_rollout = self,
                                 .max_prompt = max_prompt,
                                 .truncation_side = side});
      const Views all = builder.Build(sample_).value();
      GrowingViews prefixes =
          builder.StartViews(sample_.problem, sample_.reference).value();
      for (size_t known = 0; known <= sample_.rollout_ids.size(); ++known) {
        if (known > 0) {
          ASSERT_TRUE(prefixes.Grow({&sample_.rollout_ids[known - 1], 1}).ok());
        }
        for (int i = 0; i < kNumViews; ++i) {
          const auto name = static_cast<size_t>(i);
          EXPECT_TRUE(Begins(all[name], prefixes.views()[name]))
              << ViewNameString(static_cast<ViewName>(i)) << " after " << known
              << " with prompts of " << max_prompt;
        }
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
  const Views prompts = PrefixesOf(builder, none);
  const Views known = PrefixesOf(builder, sample_);
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

// The template writes no preamble, and "<no thoughts>" is not part of the
// conversation, so the reference's tokens are tokenized alone.
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

TEST_F(ViewsTest, AReferenceThatOccursInTheTemplatesEndIsNotLookedForThere) {
  sample_.reference = "e";
  const ViewBuilder builder(*tokenizer_, *chat_, {});
  const Views views = builder.Build(sample_).value();
  const View& view = views[static_cast<size_t>(ViewName::kNoneReference)];
  EXPECT_EQ(std::vector<int32_t>(view.input_ids.begin() + view.scored_from,
                                 view.input_ids.end()),
            *tokenizer_->Encode("e<end>"));
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

// This is the case if a tokenizer has no pad token of its own.
TEST_F(ViewsTest, AnEndThatIsThePadIsScored) {
  const ViewBuilder builder(
      *tokenizer_, *chat_, {.pad_token_id = kSmallEndId, .pad_is_end = true});
  const std::vector<int32_t> answer = {72, kSmallEndId};
  EXPECT_EQ(builder.ScoredTokens(answer), answer);
  EXPECT_EQ(builder.ScoredTokens({72, kSmallEndId, kSmallEndId}), answer);
  EXPECT_EQ(builder.ScoredTokens({72}), std::vector<int32_t>{72});
  EXPECT_TRUE(builder.ScoredTokens({}).empty());
}

TEST_F(ViewsTest, ASampleIsTrainedWhereAnyOfItsAnswersIsScored) {
  const ViewBuilder builder(*tokenizer_, *chat_, {.pad_token_id = kSmallEndId});
  const std::vector<int32_t> padding = {kSmallEndId, kSmallEndId};
  const std::vector<int32_t> answer = {72, kSmallEndId};
  for (const bool scores_references : {false, true}) {
    const auto is_trained = [&](const std::vector<int32_t>& rollout,
                                const std::vector<int32_t>& reference) {
      return builder.IsTrained(rollout, reference, scores_references);
    };
    EXPECT_TRUE(is_trained(answer, {}));
    EXPECT_TRUE(is_trained(answer, padding));
    EXPECT_EQ(is_trained(padding, {}), scores_references);
    EXPECT_EQ(is_trained(padding, answer), scores_references);
    EXPECT_FALSE(is_trained(padding, padding));
  }
}

TEST_F(ViewsTest, ViewsBesidesTheSixAreMadeWhereTheyAreRead) {
  using enum ViewName;
  const Views six = ViewBuilder(*tokenizer_, *chat_, {}).Build(sample_).value();
  const ViewBuilder builder(
      *tokenizer_,
      *chat_,
      {.prompts = Prompts({.demonstration = "{problem} as in {reference}",
                           .probe = "Only {reference}"}),
       .extra_views = {kDemonstrationRollout, kProbeRollout}});
  const Views views = builder.Build(sample_).value();
  const auto at = [](const Views& all, ViewName name) -> const View& {
    return all[static_cast<size_t>(name)];
  };
  for (const auto& [name, message] :
       {std::pair{kDemonstrationRollout, "How many? as in the answer is 123"},
        {kProbeRollout, "Only the answer is 123"}}) {
    EXPECT_TRUE(at(six, name).input_ids.empty());
    const View& view = at(views, name);
    EXPECT_EQ(view.scored_count, at(six, kNoneRollout).scored_count);
    const std::string text =
        tokenizer_->Decode(view.input_ids, /*skip_special_tokens=*/false)
            .value();
    EXPECT_NE(text.find(message), std::string::npos) << text;
    EXPECT_TRUE(Begins(view, at(PrefixesOf(builder, sample_), name)));
  }
  EXPECT_EQ(at(views, kCrossRollout), at(six, kCrossRollout));
}

TEST_F(ViewsTest, WhereNothingReadsRolloutsASampleNeedsNone) {
  sample_.rollout_ids.clear();
  const ViewBuilder builder(*tokenizer_, *chat_, {.reads_rollouts = false});
  const auto views = builder.Build(sample_);
  ASSERT_TRUE(views.ok()) << views.status();
  EXPECT_EQ(
      *views,
      builder.BuildReferenceViews(sample_.problem, sample_.reference).value());
}

TEST_F(ViewsTest, ASampledReferenceIsScoredInItsOwnTokens) {
  const ViewBuilder builder(
      *tokenizer_,
      *chat_,
      {.max_reference_tokens = 9, .pad_token_id = kSmallEndId});
  sample_.reference_ids = *tokenizer_->Encode("th e answer");
  sample_.reference_ids.push_back(kSmallEndId);
  sample_.reference = "not shown";
  const Views views = builder.Build(sample_).value();
  const auto at = [&](ViewName name) {
    return views[static_cast<size_t>(name)];
  };
  for (const ViewName name : {ViewName::kNoneReference,
                              ViewName::kSelfReference,
                              ViewName::kCrossReference}) {
    const View view = at(name);
    EXPECT_EQ(std::vector<int32_t>(view.input_ids.begin() + view.scored_from,
                                   view.input_ids.end()),
              std::vector<int32_t>(sample_.reference_ids.begin(),
                                   sample_.reference_ids.begin() + 9))
        << ViewNameString(name) << ": cut, and without padding";
  }
  const std::vector<int32_t> prompt =
      builder.RolloutPrompt(sample_.problem).value();
  EXPECT_EQ(at(ViewName::kNoneReference).scored_from,
            static_cast<int64_t>(prompt.size()));
  EXPECT_TRUE(std::equal(prompt.begin(),
                         prompt.end(),
                         at(ViewName::kNoneReference).input_ids.begin()));
  for (const ViewName name :
       {ViewName::kSelfReference, ViewName::kCrossRollout}) {
    const std::string text = *tokenizer_->Decode(at(name).input_ids, false);
    EXPECT_NE(text.find("Begin ===\nth e answer\n=== Reference"),
              std::string::npos)
        << text;
  }

  sample_.reference_ids = {kSmallEndId};
  const auto empty = builder.Build(sample_);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(
      (*empty)[static_cast<size_t>(ViewName::kNoneReference)].scored_count, 0);
}

TEST_F(ViewsTest, TheSelfTeacherReadsASiblingAndFeedback) {
  const ViewBuilder builder(*tokenizer_, *chat_, {});
  const auto sibling = [&] {
    return builder.Build(sample_)
        .value()[static_cast<size_t>(ViewName::kSiblingRollout)];
  };
  EXPECT_EQ(sibling(), View()) << "there is nothing to show";
  const auto prompt = [&] {
    const View view = sibling();
    EXPECT_EQ(view.scored_count,
              static_cast<int64_t>(sample_.rollout_ids.size()));
    return *tokenizer_->Decode(
        {view.input_ids.begin(), view.input_ids.begin() + view.scored_from},
        /*skip_special_tokens=*/false);
  };
  const std::string none =
      *tokenizer_->Decode(builder.RolloutPrompt(sample_.problem).value(),
                          /*skip_special_tokens=*/false);
  const std::string end = "<end><assistant><no thoughts>";
  ASSERT_NE(none.find(end), std::string::npos) << none;
  const std::string question = none.substr(0, none.find(end));
  const std::string correctly = "\n\nCorrectly solve the original question.";
  const std::string solution = "\nCorrect solution:\n\nit is 12";
  const std::string feedback =
      "\nThe following is feedback from your unsuccessful earlier "
      "attempt:\n\nno";
  sample_.context = {.sibling = "it is 12"};
  EXPECT_EQ(prompt(), question + solution + correctly + end);
  sample_.context = {.feedback = "no"};
  EXPECT_EQ(prompt(), question + feedback + correctly + end);
  sample_.context = {.sibling = "it is 12", .feedback = "no"};
  EXPECT_EQ(prompt(), question + solution + feedback + correctly + end);
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
  const Views beginnings = PrefixesOf(cut, sample_);
  for (int i = 0; i < kNumViews; ++i) {
    EXPECT_TRUE(Begins(views[static_cast<size_t>(i)],
                       beginnings[static_cast<size_t>(i)]));
  }
}

TEST_F(ViewsTest, PromptsBeforeARolloutCanBeCutOnTheLeft) {
  const ViewBuilder uncut(*tokenizer_, *chat_, {});
  const ViewBuilder cut(*tokenizer_,
                        *chat_,
                        {.max_sampler_prompt = 20,
                         .max_prompt = 50,
                         .truncation_side = TruncationSide::kLeft});
  const Views whole = uncut.Build(sample_).value();
  const Views views = cut.Build(sample_).value();
  for (const auto& [name, prompt] :
       {std::pair{ViewName::kNoneRollout, int64_t{20}},
        {ViewName::kCrossRollout, int64_t{50}}}) {
    const View& view = views[static_cast<size_t>(name)];
    const View& before = whole[static_cast<size_t>(name)];
    EXPECT_EQ(view.scored_from, prompt) << ViewNameString(name);
    EXPECT_TRUE(std::equal(view.input_ids.rbegin(),
                           view.input_ids.rend(),
                           before.input_ids.rbegin()))
        << ViewNameString(name);
  }
}

TEST_F(ViewsTest, WhatIsSampledThinksIfItIsAskedTo) {
  const auto text_of = [&](ViewOptions options) {
    const ViewBuilder builder(*tokenizer_, *chat_, std::move(options));
    return tokenizer_
        ->Decode(builder.RolloutPrompt(sample_.problem).value(),
                 /*skip_special_tokens=*/false)
        .value();
  };
  const std::string thinking = text_of({.thinking = true});
  EXPECT_TRUE(absl::EndsWith(thinking, "<end><assistant>")) << thinking;
  EXPECT_EQ(text_of({}), thinking + "<no thoughts>");
  const std::string plain =
      text_of({.thinking = true, .special_tokens = false});
  EXPECT_EQ(plain, absl::StrReplaceAll(thinking, {{"<end>", ""}}));
}

// Uses a template that writes answers without their thoughts.
TEST_F(ViewsTest, AThoughtThatAPromptHasOpenedIsNotOpenedAgain) {
  const std::string folder = TempPath("thinker");
  WriteSmallTokenizer(folder);
  ASSERT_TRUE(WriteFileAtomically(
                  JoinPath(folder, "chat_template.jinja"),
                  "{% for m in messages %}<{{ m.role }}>"
                  "{{ m.content.split('</think>')[-1] }}<end>{% endfor %}"
                  "{% if add_generation_prompt %}<assistant><think>\n"
                  "{% endif %}")
                  .ok());
  const auto chat = ChatTemplate::Load(folder).value();
  sample_.reference = "<think>\nhm\n</think>\n\n12";
  const ViewBuilder builder(*tokenizer_, *chat, {.thinking = true});
  const Views views = builder.Build(sample_).value();
  const View& view = views[static_cast<size_t>(ViewName::kNoneReference)];
  const std::string text =
      tokenizer_->Decode(view.input_ids, /*skip_special_tokens=*/false).value();
  EXPECT_TRUE(
      absl::EndsWith(text, "<assistant><think>\nhm\n</think>\n\n12<end>"))
      << text;
}

TEST_F(ViewsTest, APromptThatShowsAnAnswerIsCutWhereTheContextEnds) {
  sample_.context = {.sibling = "it is 12"};
  const ViewOptions options = {.self_rollout = SelfRollout::kTemplate,
                               .extra_views = {ViewName::kSiblingRollout}};
  const Views whole =
      ViewBuilder(*tokenizer_, *chat_, options).Build(sample_).value();
  for (const ViewName name : {ViewName::kSelfRollout,
                              ViewName::kCrossReference,
                              ViewName::kSiblingRollout}) {
    const View& before = whole[static_cast<size_t>(name)];
    ViewOptions limited = options;
    limited.max_view = static_cast<int64_t>(before.input_ids.size()) - 3;
    const ViewBuilder builder(*tokenizer_, *chat_, limited);
    const Views views = builder.Build(sample_).value();
    const View& view = views[static_cast<size_t>(name)];
    std::vector<int32_t> expected = before.input_ids;
    const auto end = expected.begin() + before.scored_from;
    expected.erase(end - 3, end);
    EXPECT_EQ(view.input_ids, expected) << ViewNameString(name);
    EXPECT_EQ(view.scored_from, before.scored_from - 3);
    EXPECT_EQ(view.scored_count, before.scored_count);
    // This view shows no part of an answer.
    EXPECT_EQ(views[static_cast<size_t>(ViewName::kCrossRollout)],
              whole[static_cast<size_t>(ViewName::kCrossRollout)]);
    limited.max_view = 30;
    const Views told =
        PrefixesOf(ViewBuilder(*tokenizer_, *chat_, limited), sample_);
    EXPECT_LE(told[static_cast<size_t>(name)].input_ids.size(), 30u);
  }
}

TEST_F(ViewsTest, TheRowsConversationStandsAroundTheProblemAndIsNotScored) {
  const ViewBuilder builder(
      *tokenizer_,
      *chat_,
      {.prompts = Prompts({.none = "N {problem} {hint}",
                           .privileged = "{prompt} {context} {reference}"}),
       .system = "all"});
  sample_.material = std::make_shared<const RowMaterial>(RowMaterial{
      .columns = {{"hint", "H"}, {"context", "C"}},
      .before = {{"user", "first"}, {"assistant", "the answer is 123"}},
      .after = {{"assistant", "call"}, {"tool", "result"}}});
  const Views views = builder.Build(sample_).value();
  const auto text = [&](ViewName name) {
    return tokenizer_->Decode(views[static_cast<size_t>(name)].input_ids, false)
        .value();
  };
  const std::string before =
      "<system>all<end><user>first<end><assistant>the answer is 123<end>"
      "<user>N How many? H";
  const std::string after = "<end><assistant>call<end><tool>result<end>";
  EXPECT_EQ(text(ViewName::kNoneReference),
            before + after + "<assistant><no thoughts>the answer is 123<end>");
  EXPECT_TRUE(text(ViewName::kNoneRollout).starts_with(before + after))
      << text(ViewName::kNoneRollout);
  EXPECT_TRUE(text(ViewName::kCrossRollout)
                  .starts_with(before + " C the answer is 123" + after))
      << text(ViewName::kCrossRollout);
  // Only the answer counts, though an earlier turn has its text.
  const View& none = views[static_cast<size_t>(ViewName::kNoneReference)];
  EXPECT_EQ(tokenizer_
                ->Decode({none.input_ids.begin() + none.scored_from,
                          none.input_ids.end()},
                         false)
                .value(),
            "the answer is 123<end>");
  EXPECT_EQ(none.scored_from + none.scored_count,
            static_cast<int64_t>(none.input_ids.size()));
  // The prefixes that teachers hear of are beginnings of these views.
  GrowingViews prefixes =
      builder.StartViews(sample_.source(), sample_.reference).value();
  ASSERT_TRUE(prefixes.Grow(sample_.rollout_ids).ok());
  for (size_t i = 0; i < views.size(); ++i) {
    EXPECT_TRUE(Begins(views[i], prefixes.views()[i]))
        << ViewNameString(static_cast<ViewName>(i));
  }
}

TEST_F(ViewsTest, TheSystemMessageIsTheMostSpecificOne) {
  const RowMaterial own = {.columns = {{"hint", "H"}}, .system = "row"};
  const RowMaterial plain = {.columns = {{"hint", "H"}}};
  const auto prompt = [&](ViewOptions options, const RowMaterial* material) {
    const ViewBuilder builder(*tokenizer_, *chat_, std::move(options));
    const auto ids = builder.EvaluationPrompt({sample_.problem, material},
                                              EvaluationForm::kPlain,
                                              /*thinking=*/false);
    const std::string text = tokenizer_->Decode(ids.value(), false).value();
    return text.substr(0, text.find("<user>"));
  };
  const auto options = [](const std::string& prompts_system) {
    return ViewOptions{.prompts = Prompts({.system = prompts_system}),
                       .system = "all"};
  };
  EXPECT_EQ(prompt({}, nullptr), "");
  EXPECT_EQ(prompt({}, &own), "<system>row<end>");
  EXPECT_EQ(prompt(options(""), nullptr), "<system>all<end>");
  EXPECT_EQ(prompt(options(""), &plain), "<system>all<end>");
  EXPECT_EQ(prompt(options(""), &own), "<system>row<end>");
  EXPECT_EQ(prompt(options("{hint} {problem}"), &own),
            "<system>H How many?<end>");
}

TEST_F(ViewsTest, APromptWithTheContextAloneShowsNoAnswer) {
  const ViewBuilder builder(
      *tokenizer_,
      *chat_,
      {.prompts = Prompts({.privileged = "{problem} {context}"})});
  sample_.material = std::make_shared<const RowMaterial>(
      RowMaterial{.columns = {{"context", "__ANSWER__ the C"}}});
  const Views views = builder.Build(sample_).value();
  const View& cross = views[static_cast<size_t>(ViewName::kCrossRollout)];
  EXPECT_EQ(tokenizer_
                ->Decode({cross.input_ids.begin(),
                          cross.input_ids.begin() + cross.scored_from},
                         false)
                .value(),
            "<user>How many? __ANSWER__ the C<end><assistant>");
  GrowingViews prefixes =
      builder.StartViews(sample_.source(), sample_.reference).value();
  ASSERT_TRUE(prefixes.Grow(sample_.rollout_ids).ok());
  for (size_t i = 0; i < views.size(); ++i) {
    EXPECT_TRUE(Begins(views[i], prefixes.views()[i]))
        << ViewNameString(static_cast<ViewName>(i));
  }
}

}  // namespace
}  // namespace dapd
