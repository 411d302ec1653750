#include "common/data/text_pipeline.h"

#include "common/base/status_macros.h"

namespace dapd {

absl::StatusOr<TextPipeline> LoadTextPipeline(const std::string& model_folder,
                                              const ObjectiveSection& objective,
                                              int32_t pad_token_id) {
  TextPipeline text;
  ASSIGN_OR_RETURN(text.tokenizer, Tokenizer::Load(model_folder));
  ASSIGN_OR_RETURN(text.chat_template, ChatTemplate::Load(model_folder));
  ViewOptions options;
  options.self_rollout = objective.self_rollout == "template"
                             ? ViewOptions::SelfRollout::kTemplate
                             : ViewOptions::SelfRollout::kAppend;
  options.max_reference_tokens = objective.max_reference_tokens;
  options.pad_token_id = pad_token_id;
  text.views = std::make_unique<const ViewBuilder>(
      *text.tokenizer, *text.chat_template, options);
  return text;
}

}  // namespace dapd
