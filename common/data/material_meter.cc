#include "common/data/material_meter.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {

absl::StatusOr<int64_t> MaterialMeter::ConversationTokens(
    const Problem& problem) {
  if (problem.material == nullptr) return 0;
  const auto known = conversations_.find(problem.material.get());
  if (known != conversations_.end()) return known->second;
  ASSIGN_OR_RETURN(const int64_t tokens,
                   builder_.MostConversationTokens(problem.source()));
  conversations_[problem.material.get()] = tokens;
  return tokens;
}

absl::StatusOr<int64_t> MaterialMeter::MostTokens(const Problem& problem) {
  if (problem.material == nullptr) return 0;
  const auto conversation = ConversationTokens(problem);
  if (!conversation.ok()) return RowError(problem, conversation.status());
  int64_t longest = 0;
  for (const auto& [name, text] : problem.material->columns) {
    longest = std::max(longest, ::dapd::MostTokens(text));
  }
  return *conversation +
         static_cast<int64_t>(builder_.prompts().most_columns()) * longest;
}

}  // namespace dapd
