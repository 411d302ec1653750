#include "common/generation/scored_prompt.h"

namespace dapd {

void AppendScoredPrompt(int64_t slot,
                        std::span<const int32_t> prompt,
                        const RowScores& scores,
                        std::vector<DecodedToken>* tokens) {
  const auto* logprobs = scores.logprobs.const_data_ptr<float>();
  const auto* top_ids = scores.top_ids.const_data_ptr<int64_t>();
  const auto* top_logprobs = scores.top_logprobs.const_data_ptr<float>();
  for (size_t i = 1; i < prompt.size(); ++i) {
    tokens->push_back(
        {.slot = slot,
         .token = prompt[i],
         .logprob = logprobs[i - 1],
         .prompt_top = TopToken{.id = static_cast<int32_t>(top_ids[i - 1]),
                                .logprob = top_logprobs[i - 1]}});
  }
}

}  // namespace dapd
