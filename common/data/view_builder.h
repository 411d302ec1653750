// ViewBuilder turns a sample's texts and token ids into its views
// (common/terms/view.h), with the prompts and masks of docs/objective.md.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/config/prompts.h"
#include "common/data/growing_views.h"
#include "common/data/message_renderer.h"
#include "common/data/row_material.h"
#include "common/data/self_teacher.h"
#include "common/terms/view.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

struct Sample {
  std::string id;
  std::string problem;
  std::string reference;
  std::vector<int32_t> rollout_ids;  // as sampled, including the end token
  // A sampled answer in place of the reference, including the end token; its
  // text is then shown. If empty, the reference is a text.
  std::vector<int32_t> reference_ids;
  TeacherContext context;  // if empty, the sample has no sibling_rollout
  std::shared_ptr<const RowMaterial> material = nullptr;  // Problem::material

  PromptSource source() const { return {problem, material.get()}; }
};

inline constexpr int64_t kUncut = std::numeric_limits<int64_t>::max();

struct ViewOptions {
  SelfRollout self_rollout = SelfRollout::kAppend;
  int64_t max_reference_tokens = 1024;
  // Limits of the prompts in front of a rollout. The sampler's prompt, which is
  // also None's, is cut so that the longest answer fits behind it; `max_prompt`
  // is for the other prompts.
  int64_t max_sampler_prompt = kUncut;
  int64_t max_prompt = kUncut;
  TruncationSide truncation_side = TruncationSide::kRight;
  // Limit of a view whose prompt shows a sampled answer. The text of the answer
  // may take more tokens than were sampled; the prompt is cut so that the
  // scored tokens still fit behind it.
  int64_t max_view = kUncut;
  int32_t pad_token_id = -1;  // removed from the rollout's end
  // Whether answers end with the pad token. The first pad token at the end then
  // belongs to the answer and is scored.
  bool pad_is_end = false;
  Prompts prompts;
  // The system message of rows that have none of their own (data.system),
  // unless prompts.system replaces both. Empty: there is none.
  std::string system = "";
  // Whether the template's thinking is on: `privileged_thinking` is for prompts
  // that show an answer in front of another answer, `thinking` for all other
  // prompts.
  bool privileged_thinking = true;
  bool thinking = false;
  // Whether the sampler's prompt has the template's special tokens. Otherwise
  // it is the template's text without them, tokenized alone.
  bool special_tokens = true;
  std::set<ViewName> extra_views;  // views to build besides the six
  bool reads_rollouts = true;      // whether a sample must have one
};
// Returns the options of the configuration, with the views that its terms read.
// The model decides pad_token_id and max_view, which are not set here.
ViewOptions MakeViewOptions(const Config& config);

// Builds views with one model folder's tokenizer and template. Thread-safe.
//
// All prompts of a row are conversations: the system message, the row's earlier
// messages, the user message that the section `prompts` makes of the problem,
// and the row's tool calls and results behind it (RowMaterial). Only the answer
// behind them is scored.
class ViewBuilder {
 public:
  // Both must outlive the builder.
  ViewBuilder(const Tokenizer& tokenizer,
              const ChatTemplate& chat_template,
              ViewOptions options);

  const Prompts& prompts() const { return options_.prompts; }

  // Returns the sampler's prompt: None's user turn and the generation prompt.
  absl::StatusOr<std::vector<int32_t>> RolloutPrompt(
      const PromptSource& source) const;

  // Returns an upper bound on the tokens that the row's conversation adds to
  // any view, without its problem, its answer and the fields of prompts. It
  // renders the conversation and does not tokenize it. Returns the template's
  // error if the conversation cannot be rendered.
  absl::StatusOr<int64_t> MostConversationTokens(
      const PromptSource& source) const;

  // Returns an evaluation's uncut prompt: its user turn and the generation
  // prompt. With kTraining and the options' thinking it equals RolloutPrompt's
  // result, if that has special tokens and is not cut. `thinking` has no effect
  // if the template does not read it.
  absl::StatusOr<std::vector<int32_t>> EvaluationPrompt(
      const PromptSource& source, EvaluationForm form, bool thinking) const;

  // Returns the scored tokens of a rollout: all except the padding at its end.
  // The first pad token stays if it is also the end token.
  std::vector<int32_t> ScoredTokens(std::vector<int32_t> rollout_ids) const;
  // Returns whether a step trains a sample with these answers: its rollout has
  // a scored token or, if terms train references (`scores_references`), its
  // reference has one. Empty `reference_ids` stand for the given reference,
  // which always has scored tokens.
  bool IsTrained(const std::vector<int32_t>& rollout_ids,
                 const std::vector<int32_t>& reference_ids,
                 bool scores_references) const;
  // Returns the text of these tokens, which a view shows for a sampled answer.
  absl::StatusOr<std::string> TextOf(
      const std::vector<int32_t>& rollout_ids) const;

  // Builds only the views that need no rollout (none_reference,
  // self_reference); the other entries stay empty.
  //
  // Each prompt ends where its conversation's preamble ends: behind the last
  // empty think block that the template writes after the assistant's role.
  // Without such a block, or if the reference has thoughts of its own, it ends
  // as the generation prompt does (with `thinking` for None,
  // `privileged_thinking` for Self). Both views score the tokens of None, which
  // MessageRenderer::Completion returns.
  absl::StatusOr<Views> BuildReferenceViews(const PromptSource& source,
                                            const std::string& reference) const;

  // Builds these views for a sampled answer in place of the reference. Its own
  // tokens without the padding at their end, at most max_reference_tokens, are
  // scored behind the sampler's prompt (None) and, with `thinking`, behind the
  // privileged prompt that shows its text (Self). An answer that is only
  // padding scores nothing.
  absl::StatusOr<Views> BuildReferenceViews(
      const PromptSource& source,
      const std::vector<int32_t>& reference_ids) const;

  // Returns the prefixes of the views that need a rollout, before its first
  // token.
  absl::StatusOr<GrowingViews> StartViews(const PromptSource& source,
                                          const std::string& reference) const;

  // Builds the six views and extra_views. Views over a rollout that is only
  // padding score nothing (scored_count 0), and a view that shows it shows an
  // empty text. sibling_rollout is built if the sample has a context. If
  // nothing reads rollouts, a sample may have none, and only the views without
  // a rollout are built. Returns INVALID_ARGUMENT for any other sample without
  // a rollout, and for a reference without a token.
  absl::StatusOr<Views> Build(const Sample& sample) const;
  // Builds the views with `reference_views` from BuildReferenceViews.
  absl::StatusOr<Views> Build(const Sample& sample,
                              Views reference_views) const;

 private:
  // Returns the first or the last `limit` tokens, by truncation_side.
  std::vector<int32_t> Cut(std::vector<int32_t> prompt, int64_t limit) const;
  // Returns the row's system message.
  std::optional<std::string> SystemOf(const PromptSource& source) const;
  MessageRenderer RendererOf(const PromptSource& source) const;
  std::string NoneMessage(const PromptSource& source) const;
  std::string PrivilegedMessage(const PromptSource& source,
                                const std::string& shown) const;
  // Returns a prompt in front of a rollout.
  absl::StatusOr<std::vector<int32_t>> RolloutPrefix(const PromptSource& source,
                                                     const std::string& message,
                                                     bool thinking) const;
  // Returns the prefixes of the views over a rollout that show the reference.
  absl::StatusOr<std::vector<std::pair<ViewName, std::vector<int32_t>>>>
  ReferencePrefixes(const PromptSource& source,
                    const std::string& reference) const;
  // Returns the text of a privileged prompt before the answer that it shows;
  // nothing if prompts.privileged shows no answer.
  absl::StatusOr<std::optional<std::string>> TextBeforeShown(
      const PromptSource& source, bool thinking) const;
  // Returns the view with a prompt that shows a sampled answer.
  View MakeShowing(std::vector<int32_t> prompt,
                   const std::vector<int32_t>& scored) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  ViewOptions options_;
};

}  // namespace dapd
