#include "common/data/held_out_prompt.h"

namespace dapd {

int64_t HeldOutAnswerTokens(const Config& config) {
  return config.evaluation.max_new_tokens > 0 ? config.evaluation.max_new_tokens
                                              : config.rollout.max_new_tokens;
}

absl::StatusOr<std::vector<int32_t>> HeldOutPrompt(const Config& config,
                                                   const ViewBuilder& views,
                                                   const PromptSource& source) {
  const EvaluationForm form = config.evaluation.prompt;
  const bool thinking = config.evaluation.thinking;
  if (form == EvaluationForm::kTraining && !thinking) {
    return views.RolloutPrompt(source);
  }
  return views.EvaluationPrompt(source, form, thinking);
}

}  // namespace dapd
