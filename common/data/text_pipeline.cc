#include "common/data/text_pipeline.h"

#include "common/base/status_macros.h"

namespace dapd {

absl::StatusOr<TextPipeline> LoadTextPipeline(const std::string& model_folder,
                                              ViewOptions options,
                                              int64_t end_token_id) {
  TextPipeline text;
  ASSIGN_OR_RETURN(text.tokenizer, Tokenizer::Load(model_folder));
  ASSIGN_OR_RETURN(text.chat_template, ChatTemplate::Load(model_folder));
  options.pad_token_id =
      text.tokenizer->pad_id().value_or(static_cast<int32_t>(end_token_id));
  options.pad_is_end = !text.tokenizer->pad_id().has_value() ||
                       text.tokenizer->pad_id() == text.tokenizer->end_id();
  text.views = std::make_unique<const ViewBuilder>(
      *text.tokenizer, *text.chat_template, options);
  return text;
}

}  // namespace dapd
