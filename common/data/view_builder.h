// ViewBuilder: a sample's texts and token ids become its six views
// (common/objective/spec/view.h), prompts and masks as docs/objective.md has
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/objective/spec/view.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

struct Sample {
  std::string id;
  std::string problem;
  std::string reference;
  std::vector<int32_t> rollout_ids;  // as sampled, end token included
};

struct ViewOptions {
  enum class SelfRollout { kAppend, kTemplate };
  SelfRollout self_rollout = SelfRollout::kAppend;
  int64_t max_reference_tokens = 1024;
  int32_t pad_token_id = -1;  // dropped from the rollout's end
};

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

  // The views that need no rollout (none_reference, self_reference) alone.
  // The other entries stay empty.
  absl::StatusOr<Views> BuildReferenceViews(const std::string& problem,
                                            const std::string& reference) const;

  // The prefixes of the views that need a rollout, as far as its first tokens
  // tell them; nothing is scored yet. `so_far`.rollout_ids may be empty. Of a
  // view that shows the rollout inside its prompt the last words are left out,
  // since what follows may change their tokens; the rest is nearly always, but
  // not certainly, what Build will give.
  absl::StatusOr<Views> BuildPrefixes(const Sample& so_far) const;

  // All six. INVALID_ARGUMENT for an empty rollout or reference.
  absl::StatusOr<Views> Build(const Sample& sample) const;

 private:
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  ViewOptions options_;
};

}  // namespace dapd
