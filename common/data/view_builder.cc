#include "common/data/view_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/config/preset_terms.h"
#include "common/config/released_prompts.h"
#include "common/config/step_kind.h"
#include "common/terms/term.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

// Returns the problem and the instruction alone, as in OPSD's evaluation.
std::string PlainMessage(absl::string_view problem) {
  return absl::StrCat(problem, "\n\n", kReleasedInstruction);
}

int64_t Size(const std::vector<int32_t>& ids) {
  return static_cast<int64_t>(ids.size());
}

View MakeView(const std::vector<int32_t>& prefix,
              const std::vector<int32_t>& scored) {
  View view;
  view.input_ids = prefix;
  view.scored_from = Size(prefix);
  view.scored_count = Size(scored);
  view.input_ids.insert(view.input_ids.end(), scored.begin(), scored.end());
  return view;
}

std::vector<int32_t> CutRight(std::vector<int32_t> ids, int64_t limit) {
  if (Size(ids) > limit) {
    ids.resize(static_cast<size_t>(limit));
  }
  return ids;
}

View& At(Views& views, ViewName name) {
  return views[static_cast<size_t>(name)];
}

}  // namespace

ViewOptions MakeViewOptions(const Config& config) {
  ViewOptions options;
  options.self_rollout = config.objective.self_rollout;
  options.max_reference_tokens = config.objective.max_reference_tokens;
  const PromptsSection& prompts = config.prompts;
  const int64_t limit = prompts.max_tokens > 0 ? prompts.max_tokens : kUncut;
  options.max_prompt = std::min(limit, config.data.max_prompt_tokens);
  options.max_sampler_prompt = std::clamp<int64_t>(
      config.data.max_prompt_tokens - config.rollout.max_new_tokens, 1, limit);
  options.truncation_side = prompts.truncation_side;
  options.prompts = Prompts(prompts);
  options.system = config.data.system;
  options.privileged_thinking = prompts.privileged_thinking;
  options.thinking = prompts.thinking;
  options.special_tokens = prompts.special_tokens;
  const std::vector<Term> terms = ExpandTerms(config.objective);
  options.reads_rollouts = ReadsRollouts(terms) && !TakesTurns(config);
  for (const ViewName view : ViewsRead(terms)) {
    if (!IsAlwaysBuilt(view)) options.extra_views.insert(view);
  }
  return options;
}

ViewBuilder::ViewBuilder(const Tokenizer& tokenizer,
                         const ChatTemplate& chat_template,
                         ViewOptions options)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      options_(std::move(options)) {}

std::optional<std::string> ViewBuilder::SystemOf(
    const PromptSource& source) const {
  if (auto system = options_.prompts.System(source.problem, source.columns())) {
    return system;
  }
  if (source.material != nullptr && source.material->system.has_value()) {
    return source.material->system;
  }
  if (!options_.system.empty()) return options_.system;
  return std::nullopt;
}

MessageRenderer ViewBuilder::RendererOf(const PromptSource& source) const {
  return {tokenizer_, chat_template_, SystemOf(source), source.material};
}

std::string ViewBuilder::NoneMessage(const PromptSource& source) const {
  return options_.prompts.None(source.problem, source.columns());
}

std::string ViewBuilder::PrivilegedMessage(const PromptSource& source,
                                           const std::string& shown) const {
  return options_.prompts.Privileged(source.problem, shown, source.columns());
}

absl::StatusOr<std::vector<int32_t>> ViewBuilder::RolloutPrompt(
    const PromptSource& source) const {
  ASSIGN_OR_RETURN(
      std::vector<int32_t> prompt,
      RendererOf(source).Prompt(NoneMessage(source), options_.thinking));
  if (!options_.special_tokens) {
    ASSIGN_OR_RETURN(const std::string text,
                     tokenizer_.Decode(prompt, /*skip_special_tokens=*/true));
    ASSIGN_OR_RETURN(prompt, tokenizer_.Encode(text));
  }
  return Cut(std::move(prompt), options_.max_sampler_prompt);
}

absl::StatusOr<int64_t> ViewBuilder::MostConversationTokens(
    const PromptSource& source) const {
  const MessageRenderer renderer = RendererOf(source);
  int64_t most = 0;
  for (const bool thinking : {false, true}) {
    if (thinking && !chat_template_.supports_thinking()) continue;
    ASSIGN_OR_RETURN(const std::string prompt,
                     renderer.PromptText("", thinking));
    most = std::max(most, MostTokens(prompt));
  }
  ASSIGN_OR_RETURN(const std::string conversation,
                   renderer.Conversation("", ""));
  return std::max(most, MostTokens(conversation));
}

std::vector<int32_t> ViewBuilder::Cut(std::vector<int32_t> prompt,
                                      int64_t limit) const {
  if (Size(prompt) <= limit) return prompt;
  if (options_.truncation_side == TruncationSide::kRight) {
    return CutRight(std::move(prompt), limit);
  }
  return {prompt.end() - limit, prompt.end()};
}

absl::StatusOr<std::vector<int32_t>> ViewBuilder::EvaluationPrompt(
    const PromptSource& source, EvaluationForm form, bool thinking) const {
  return RendererOf(source).Prompt(form == EvaluationForm::kTraining
                                       ? NoneMessage(source)
                                       : PlainMessage(source.problem),
                                   thinking);
}

absl::StatusOr<std::vector<int32_t>> ViewBuilder::RolloutPrefix(
    const PromptSource& source,
    const std::string& message,
    bool thinking) const {
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                   RendererOf(source).Prompt(message, thinking));
  return Cut(std::move(prompt), options_.max_prompt);
}

absl::StatusOr<std::vector<std::pair<ViewName, std::vector<int32_t>>>>
ViewBuilder::ReferencePrefixes(const PromptSource& source,
                               const std::string& reference) const {
  const Prompts& prompts = options_.prompts;
  std::vector<std::pair<ViewName, std::vector<int32_t>>> prefixes;
  const auto add = [&](ViewName view,
                       const std::string& message) -> absl::Status {
    ASSIGN_OR_RETURN(
        std::vector<int32_t> prefix,
        RolloutPrefix(source, message, options_.privileged_thinking));
    prefixes.emplace_back(view, std::move(prefix));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(
      add(ViewName::kCrossRollout, PrivilegedMessage(source, reference)));
  if (options_.extra_views.contains(ViewName::kDemonstrationRollout)) {
    RETURN_IF_ERROR(add(
        ViewName::kDemonstrationRollout,
        prompts.Demonstration(source.problem, reference, source.columns())));
  }
  if (options_.extra_views.contains(ViewName::kProbeRollout)) {
    RETURN_IF_ERROR(add(ViewName::kProbeRollout,
                        prompts.Probe(reference, source.columns())));
  }
  return prefixes;
}

View ViewBuilder::MakeShowing(std::vector<int32_t> prompt,
                              const std::vector<int32_t>& scored) const {
  const int64_t room = std::max<int64_t>(1, options_.max_view - Size(scored));
  return MakeView(Cut(std::move(prompt), room), scored);
}

std::vector<int32_t> ViewBuilder::ScoredTokens(
    std::vector<int32_t> rollout_ids) const {
  size_t size = rollout_ids.size();
  while (size > 0 && rollout_ids[size - 1] == options_.pad_token_id) --size;
  if (options_.pad_is_end && size < rollout_ids.size()) ++size;
  rollout_ids.resize(size);
  return rollout_ids;
}

bool ViewBuilder::IsTrained(const std::vector<int32_t>& rollout_ids,
                            const std::vector<int32_t>& reference_ids,
                            bool scores_references) const {
  if (!ScoredTokens(rollout_ids).empty()) return true;
  return scores_references &&
         (reference_ids.empty() || !ScoredTokens(reference_ids).empty());
}

absl::StatusOr<std::string> ViewBuilder::TextOf(
    const std::vector<int32_t>& rollout_ids) const {
  return tokenizer_.Decode(ScoredTokens(rollout_ids),
                           /*skip_special_tokens=*/true);
}

absl::StatusOr<Views> ViewBuilder::BuildReferenceViews(
    const PromptSource& source,
    const std::vector<int32_t>& reference_ids) const {
  const std::vector<int32_t> scored =
      CutRight(ScoredTokens(reference_ids), options_.max_reference_tokens);
  ASSIGN_OR_RETURN(const std::string text, TextOf(reference_ids));
  ASSIGN_OR_RETURN(const std::vector<int32_t> none, RolloutPrompt(source));
  ASSIGN_OR_RETURN(
      std::vector<int32_t> self,
      RolloutPrefix(
          source, PrivilegedMessage(source, text), options_.thinking));
  Views views;
  At(views, ViewName::kNoneReference) = MakeView(none, scored);
  At(views, ViewName::kSelfReference) = MakeShowing(std::move(self), scored);
  return views;
}

absl::StatusOr<Views> ViewBuilder::BuildReferenceViews(
    const PromptSource& source, const std::string& reference) const {
  const MessageRenderer renderer = RendererOf(source);
  const std::string none = NoneMessage(source);
  ASSIGN_OR_RETURN(const std::string none_text,
                   renderer.Conversation(none, reference));
  ASSIGN_OR_RETURN(
      const std::vector<int32_t> none_prompt,
      renderer.ReferencePrompt(none, none_text, options_.thinking));
  const std::string self = PrivilegedMessage(source, reference);
  ASSIGN_OR_RETURN(const std::string self_text,
                   renderer.Conversation(self, reference));
  ASSIGN_OR_RETURN(
      const std::vector<int32_t> self_prompt,
      renderer.ReferencePrompt(self, self_text, options_.privileged_thinking));
  ASSIGN_OR_RETURN(
      std::vector<int32_t> scored,
      renderer.Completion(
          none, reference, none_text, none_prompt, options_.thinking));
  scored = CutRight(std::move(scored), options_.max_reference_tokens);
  if (scored.empty()) {
    return absl::InvalidArgumentError("the reference has no tokens");
  }
  Views views;
  At(views, ViewName::kNoneReference) = MakeView(none_prompt, scored);
  At(views, ViewName::kSelfReference) = MakeView(self_prompt, scored);
  return views;
}

absl::StatusOr<std::optional<std::string>> ViewBuilder::TextBeforeShown(
    const PromptSource& source, bool thinking) const {
  std::string mark = "__ANSWER__";
  const std::string key = source.Key();
  while (absl::StrContains(key, mark)) mark += "_";
  ASSIGN_OR_RETURN(
      const std::string text,
      RendererOf(source).PromptText(PrivilegedMessage(source, mark), thinking));
  const size_t begin = text.find(mark);
  if (begin == std::string::npos) return std::nullopt;
  return text.substr(0, begin);
}

absl::StatusOr<GrowingViews> ViewBuilder::StartViews(
    const PromptSource& source, const std::string& reference) const {
  GrowingViews prefixes(tokenizer_);
  const auto continues = [&](ViewName name, std::vector<int32_t> prompt) {
    At(prefixes.views_, name).input_ids = std::move(prompt);
    prefixes.continued_.push_back(name);
  };
  const auto shows =
      [&](ViewName name, bool thinking, int64_t limit) -> absl::Status {
    ASSIGN_OR_RETURN(const std::optional<std::string> text,
                     TextBeforeShown(source, thinking));
    // The views of a prompt that does not show the answer are not told ahead.
    if (!text.has_value()) return absl::OkStatus();
    prefixes.shown_.push_back(
        {name,
         limit,
         options_.truncation_side == TruncationSide::kLeft,
         SettledEncoder(tokenizer_)});
    GrowingViews::Shown& shown = prefixes.shown_.back();
    RETURN_IF_ERROR(shown.text.Append(*text));
    prefixes.SetPrefix(shown);
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const std::vector<int32_t> none, RolloutPrompt(source));
  continues(ViewName::kNoneRollout, none);
  if (options_.self_rollout == SelfRollout::kAppend) {
    continues(ViewName::kSelfRollout, none);
  } else {
    RETURN_IF_ERROR(shows(ViewName::kSelfRollout,
                          options_.thinking,
                          std::min(options_.max_prompt, options_.max_view)));
  }
  ASSIGN_OR_RETURN(auto given, ReferencePrefixes(source, reference));
  for (auto& [name, prompt] : given) continues(name, std::move(prompt));
  RETURN_IF_ERROR(shows(ViewName::kCrossReference,
                        options_.privileged_thinking,
                        options_.max_view));
  return prefixes;
}

absl::StatusOr<Views> ViewBuilder::Build(const Sample& sample) const {
  ASSIGN_OR_RETURN(
      Views views,
      sample.reference_ids.empty()
          ? BuildReferenceViews(sample.source(), sample.reference)
          : BuildReferenceViews(sample.source(), sample.reference_ids));
  return Build(sample, std::move(views));
}

absl::StatusOr<Views> ViewBuilder::Build(const Sample& sample,
                                         Views views) const {
  if (sample.rollout_ids.empty() && !options_.reads_rollouts) return views;
  if (sample.rollout_ids.empty()) {
    return absl::InvalidArgumentError("the rollout is empty: it has no token");
  }
  const PromptSource source = sample.source();
  const std::vector<int32_t> rollout = ScoredTokens(sample.rollout_ids);
  ASSIGN_OR_RETURN(const std::string rollout_text,
                   tokenizer_.Decode(rollout, /*skip_special_tokens=*/true));
  ASSIGN_OR_RETURN(const std::vector<int32_t> none, RolloutPrompt(source));
  At(views, ViewName::kNoneRollout) = MakeView(none, rollout);

  std::vector<int32_t> self;
  if (options_.self_rollout == SelfRollout::kAppend) {
    self = none;
    self.insert(self.end(), rollout.begin(), rollout.end());
  } else {
    ASSIGN_OR_RETURN(self,
                     RolloutPrefix(source,
                                   PrivilegedMessage(source, rollout_text),
                                   options_.thinking));
  }
  At(views, ViewName::kSelfRollout) = MakeShowing(std::move(self), rollout);

  std::string shown = sample.reference;
  if (!sample.reference_ids.empty()) {
    ASSIGN_OR_RETURN(shown, TextOf(sample.reference_ids));
  }
  ASSIGN_OR_RETURN(const auto prefixes, ReferencePrefixes(source, shown));
  for (const auto& [name, prefix] : prefixes) {
    At(views, name) = sample.reference_ids.empty()
                          ? MakeView(prefix, rollout)
                          : MakeShowing(prefix, rollout);
  }

  ASSIGN_OR_RETURN(
      std::vector<int32_t> crossed,
      RendererOf(source).Prompt(PrivilegedMessage(source, rollout_text),
                                options_.privileged_thinking));
  const View& reference = At(views, ViewName::kNoneReference);
  At(views, ViewName::kCrossReference) =
      MakeShowing(std::move(crossed),
                  {reference.input_ids.begin() + reference.scored_from,
                   reference.input_ids.end()});

  if (!sample.context.empty()) {
    ASSIGN_OR_RETURN(
        std::vector<int32_t> sibling,
        RolloutPrefix(source,
                      options_.prompts.Sibling(source.problem,
                                               sample.context.sibling,
                                               sample.context.feedback,
                                               source.columns()),
                      options_.thinking));
    At(views, ViewName::kSiblingRollout) =
        MakeShowing(std::move(sibling), rollout);
  }
  return views;
}

}  // namespace dapd
