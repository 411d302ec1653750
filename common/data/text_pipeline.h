// Loads everything that a model folder defines about text: the tokenizer, the
// chat template, and the view builder that uses both.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/data/view_builder.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

// Immutable; thread-safe.
struct TextPipeline {
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat_template;
  std::unique_ptr<const ViewBuilder> views;
  // ModelConfig::vocab_size if the model is known. The model has only the ids
  // below it, whatever the tokenizer returns.
  int64_t vocab_size = std::numeric_limits<int64_t>::max();
};

// `options.pad_token_id` is replaced by the tokenizer's pad token, or by
// `end_token_id` (ModelConfig::eos_token_ids) if the tokenizer names neither a
// pad nor an end token. If the pad token is an end token, the end of an answer
// is scored nevertheless.
absl::StatusOr<TextPipeline> LoadTextPipeline(const std::string& model_folder,
                                              ViewOptions options,
                                              int64_t end_token_id);

}  // namespace dapd
