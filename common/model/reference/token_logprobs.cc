#include "common/model/reference/token_logprobs.h"

#include "common/tensor/device_copy.h"

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
  const std::vector<at::Tensor> host =
      ToHost({scores.logprobs, scores.top_ids, scores.top_logprobs});
  return {.logprobs = host[0], .top_ids = host[1], .top_logprobs = host[2]};
}

at::Tensor TokenLogprobs(const ModelWeights& weights,
                         const Adapter* adapter,
                         const std::vector<int32_t>& ids,
                         const SumOverRanks& sum) {
  return TokenScores(weights, adapter, ids, sum).logprobs;
}

}  // namespace dapd
