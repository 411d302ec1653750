// What a model folder knows about text, loaded once: tokenizer, chat template,
// and the view builder over both.
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
  // ModelConfig::vocab_size, where the model is known: the ids below it are all
  // that it has, whatever the tokenizer gives.
  int64_t vocab_size = std::numeric_limits<int64_t>::max();
};

// `options.pad_token_id` becomes the tokenizer's, or `end_token_id`
// (ModelConfig::eos_token_ids) if the tokenizer names neither a pad nor an end
// token. Where it is an end token, the end of an answer is scored all the same.
absl::StatusOr<TextPipeline> LoadTextPipeline(const std::string& model_folder,
                                              ViewOptions options,
                                              int64_t end_token_id);

}  // namespace dapd
