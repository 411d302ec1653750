// ViewBuilder: a sample's texts and token ids become its views
// (common/terms/view.h), prompts and masks as docs/objective.md has them.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/config/prompts.h"
#include "common/data/growing_prefixes.h"
#include "common/data/self_teacher.h"
#include "common/terms/view.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

struct Sample {
  std::string id;
  std::string problem;
  std::string reference;
  std::vector<int32_t> rollout_ids;  // as sampled, end token included
  // A sampled answer that stands in the reference's place, end token included;
  // its text is then what is shown. Empty: the reference is a text.
  std::vector<int32_t> reference_ids;
  TeacherContext context;  // empty: the sample lacks sibling_rollout
};

inline constexpr int64_t kUncut = std::numeric_limits<int64_t>::max();

struct ViewOptions {
  SelfRollout self_rollout = SelfRollout::kAppend;
  int64_t max_reference_tokens = 1024;
  // Prompts in front of a rollout are cut: the sampler's (which is None's) so
  // that the longest answer fits after it, and the others.
  int64_t max_sampler_prompt = kUncut;
  int64_t max_prompt = kUncut;
  TruncationSide truncation_side = TruncationSide::kRight;
  // Of a view whose prompt shows a sampled answer: the text may take more
  // tokens than it was sampled in, and the prompt is cut so that what is scored
  // still fits after it.
  int64_t max_view = kUncut;
  int32_t pad_token_id = -1;  // dropped from the rollout's end
  // Whether answers end with that token, so that the first of those at the end
  // is the answer's own and is scored.
  bool pad_is_end = false;
  Prompts prompts;
  // Whether the template's thinking is on: in the prompts that show an answer
  // in front of another one, and in all others.
  bool privileged_thinking = true;
  bool thinking = false;
  // Whether the sampler's prompt has the template's special tokens; otherwise
  // it is the template's text without them, tokenized by itself.
  bool special_tokens = true;
  std::set<ViewName> extra_views;  // to be built besides the six
  bool reads_rollouts = true;      // whether a sample must have one
};
// Those of the configuration, with the views that its terms read, and without
// what the model decides: the pad token, max_view.
ViewOptions MakeViewOptions(const Config& config);

// Builds views for one model folder's tokenizer and template. Thread-safe.
class ViewBuilder {
 public:
  // Both must outlive the builder.
  ViewBuilder(const Tokenizer& tokenizer,
              const ChatTemplate& chat_template,
              ViewOptions options);

  const Prompts& prompts() const { return options_.prompts; }

  // The sampler's prompt: None user turn and generation prompt.
  absl::StatusOr<std::vector<int32_t>> RolloutPrompt(
      const std::string& problem) const;

  // An evaluation's prompt, whole: its user turn and the generation prompt.
  // With kTraining and the options' thinking it is RolloutPrompt's, if that has
  // special tokens and is not cut. `thinking` has no effect where the template
  // does not ask for it.
  absl::StatusOr<std::vector<int32_t>> EvaluationPrompt(
      const std::string& problem, EvaluationForm form, bool thinking) const;

  // The tokens of a rollout that are scored: all but the padding at its end, of
  // which the first stays if it is the end token as well.
  std::vector<int32_t> ScoredTokens(std::vector<int32_t> rollout_ids) const;
  // Whether a step trains a sample with these answers: its rollout has a token
  // that is scored or, where terms train references (`scores_references`), its
  // reference has. `reference_ids` empty: the given reference, which has some.
  bool IsTrained(const std::vector<int32_t>& rollout_ids,
                 const std::vector<int32_t>& reference_ids,
                 bool scores_references) const;
  // What a view shows of a sampled answer: the text of these tokens.
  absl::StatusOr<std::string> TextOf(
      const std::vector<int32_t>& rollout_ids) const;

  // Only the views that need no rollout (none_reference, self_reference).
  // The other entries stay empty.
  //
  // Each prompt ends where its conversation's preamble does: after the last
  // empty think block that the template put after the assistant's role, or, if
  // there is none, as the generation prompt (None by `thinking`, Self by
  // `privileged_thinking`), as before a reference that brings thoughts of its
  // own. Both views score None's tokens, which are MessageRenderer's
  // Completion.
  absl::StatusOr<Views> BuildReferenceViews(const std::string& problem,
                                            const std::string& reference) const;

  // The same where a sampled answer stands in the reference's place: its own
  // tokens but for the padding at their end, at most max_reference_tokens, are
  // scored behind the sampler's prompt (None) and behind the privileged one
  // that shows its text, by `thinking` (Self). Padding alone scores nothing.
  absl::StatusOr<Views> BuildReferenceViews(
      const std::string& problem,
      const std::vector<int32_t>& reference_ids) const;

  // The prefixes of the views that need a rollout, before its first token.
  absl::StatusOr<GrowingPrefixes> StartPrefixes(
      const std::string& problem, const std::string& reference) const;

  // All six, and extra_views. Those over a rollout that is padding alone score
  // nothing (scored_count 0), and the one that shows it shows an empty text.
  // sibling_rollout is there where the sample has a context. Where nothing
  // reads rollouts a sample may have none, and gets the views that need none.
  // INVALID_ARGUMENT for another one without a rollout, and for a reference
  // without a token.
  absl::StatusOr<Views> Build(const Sample& sample) const;
  // The same, with `reference_views` from BuildReferenceViews.
  absl::StatusOr<Views> Build(const Sample& sample,
                              Views reference_views) const;

 private:
  // The first or the last `limit` tokens, by truncation_side.
  std::vector<int32_t> Cut(std::vector<int32_t> prompt, int64_t limit) const;
  // A prompt in front of a rollout.
  absl::StatusOr<std::vector<int32_t>> RolloutPrefix(const std::string& message,
                                                     bool thinking) const;
  // The prefixes of the views over a rollout that show the reference.
  absl::StatusOr<std::vector<std::pair<ViewName, std::vector<int32_t>>>>
  ReferencePrefixes(const std::string& problem,
                    const std::string& reference) const;
  // The text of a privileged prompt before the answer that it shows.
  absl::StatusOr<std::string> TextBeforeShown(const std::string& problem,
                                              bool thinking) const;
  // The view with a prompt that shows a sampled answer.
  View MakeShowing(std::vector<int32_t> prompt,
                   const std::vector<int32_t>& scored) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  ViewOptions options_;
};

}  // namespace dapd
