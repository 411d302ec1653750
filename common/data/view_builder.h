// ViewBuilder: a sample's texts and token ids become its six views
// (common/terms/view.h), prompts and masks as docs/objective.md has
// them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/terms/view.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

struct Sample {
  std::string id;
  std::string problem;
  std::string reference;
  std::vector<int32_t> rollout_ids;  // as sampled, end token included
};

inline constexpr int64_t kUncut = std::numeric_limits<int64_t>::max();

struct ViewOptions {
  enum class SelfRollout { kAppend, kTemplate };
  SelfRollout self_rollout = SelfRollout::kAppend;
  int64_t max_reference_tokens = 1024;
  // Prompts in front of a rollout are cut on the right: the sampler's (which is
  // None's) so that the longest answer fits behind it, and the others.
  int64_t max_sampler_prompt = kUncut;
  int64_t max_prompt = kUncut;
  int32_t pad_token_id = -1;  // dropped from the rollout's end
};
// Those of the configuration, with no pad token yet.
ViewOptions MakeViewOptions(const Config& config);

// The user's message of an evaluation: the None view's, or the problem and the
// instruction alone, without "Problem: " (OPSD's evaluation).
enum class EvaluationForm { kTraining, kPlain };
// "training" or "plain".
EvaluationForm ParseEvaluationForm(const std::string& name);

// Builds views for one model folder's tokenizer and template. Thread-safe.
class ViewBuilder {
 public:
  // Both must outlive the builder.
  ViewBuilder(const Tokenizer& tokenizer,
              const ChatTemplate& chat_template,
              ViewOptions options);

  // The sampler's prompt: None user turn, generation prompt, thinking off.
  absl::StatusOr<std::vector<int32_t>> RolloutPrompt(
      const std::string& problem) const;

  // An evaluation's prompt, whole: its user turn and the generation prompt.
  // With kTraining and thinking off it is RolloutPrompt's. `thinking` has no
  // effect where the template does not ask for it.
  absl::StatusOr<std::vector<int32_t>> EvaluationPrompt(
      const std::string& problem, EvaluationForm form, bool thinking) const;

  // The tokens of a rollout that are scored: all but the padding at its end.
  std::vector<int32_t> ScoredTokens(std::vector<int32_t> rollout_ids) const;

  // The views that need no rollout (none_reference, self_reference) alone.
  // The other entries stay empty.
  //
  // Each prompt ends where its conversation's preamble does: after the last
  // empty think block that the template put behind the assistant's role, or, if
  // there is none, as the generation prompt (None with thinking off, Self with
  // thinking on), as before a reference that brings thoughts of its own. Both
  // views score None's tokens: those of the conversation behind None's prompt
  // or, if its tokens do not begin with the prompt's, of the reference and what
  // the template writes after it, by themselves.
  absl::StatusOr<Views> BuildReferenceViews(const std::string& problem,
                                            const std::string& reference) const;

  // The prefixes of the views that need a rollout, as far as its first tokens
  // tell them; nothing is scored yet. `so_far`.rollout_ids may be empty. Of a
  // view that shows the rollout inside its prompt the last words are left out,
  // since what follows may change their tokens; the rest is nearly always, but
  // not certainly, what Build will give.
  absl::StatusOr<Views> BuildPrefixes(const Sample& so_far) const;

  // All six. Those over a rollout that is padding alone score nothing
  // (scored_count 0), and the one that shows it shows an empty text.
  // INVALID_ARGUMENT for a rollout or reference without a token.
  absl::StatusOr<Views> Build(const Sample& sample) const;
  // The same, with `reference_views` from BuildReferenceViews.
  absl::StatusOr<Views> Build(const Sample& sample,
                              Views reference_views) const;

 private:
  // In front of a rollout, with `shown` as the reference solution.
  absl::StatusOr<std::vector<int32_t>> PrivilegedPrompt(
      const std::string& problem,
      const std::string& shown,
      bool thinking) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  ViewOptions options_;
};

}  // namespace dapd
