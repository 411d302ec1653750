#include "common/model/reference/token_logprobs.h"

namespace dapd {

RowScores TokenScores(const ModelWeights& weights,
                      const Adapter* adapter,
                      const std::vector<int32_t>& ids,
                      const SumOverRanks& sum) {
  at::NoGradGuard no_grad;
  const PackedTokens tokens = PackTokens({ids}, weights.device());
  const int64_t count = static_cast<int64_t>(ids.size()) - 1;
  // Row t predicts ids[t + 1].
  const at::Tensor hidden = ForwardHidden(
      weights, adapter, tokens, at::arange(count, tokens.ids.options()), sum);
  const RowScores scores = ScoreRows(
      hidden, tokens.ids.narrow(0, 1, count), [&](const at::Tensor& rows) {
        return ApplyHead(weights, rows);
      });
  return {.logprobs = scores.logprobs.cpu(),
          .top_ids = scores.top_ids.cpu(),
          .top_logprobs = scores.top_logprobs.cpu()};
}

at::Tensor TokenLogprobs(const ModelWeights& weights,
                         const Adapter* adapter,
                         const std::vector<int32_t>& ids,
                         const SumOverRanks& sum) {
  return TokenScores(weights, adapter, ids, sum).logprobs;
}

}  // namespace dapd
