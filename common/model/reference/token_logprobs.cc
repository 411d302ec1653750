#include "common/model/reference/token_logprobs.h"

#include <algorithm>

namespace dapd {
namespace {
constexpr int64_t kChunkTokens = 128;
}  // namespace

at::Tensor TokenLogprobs(const ModelWeights& weights,
                         const Adapter* adapter,
                         const std::vector<int32_t>& ids,
                         const SumOverRanks& sum) {
  at::NoGradGuard no_grad;
  const PackedTokens tokens = PackTokens({ids}, weights.device());
  const int64_t count = static_cast<int64_t>(ids.size()) - 1;
  if (count == 0) return at::empty({0}, at::kFloat);
  // Row t predicts ids[t + 1].
  const at::Tensor hidden = ForwardHidden(
      weights, adapter, tokens, at::arange(count, tokens.ids.options()), sum);
  const at::Tensor next =
      at::tensor(at::ArrayRef<int32_t>(ids).slice(1), at::kLong)
          .to(hidden.device())
          .unsqueeze(1);
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < count; begin += kChunkTokens) {
    const int64_t length = std::min(kChunkTokens, count - begin);
    const at::Tensor logprobs = at::log_softmax(
        ApplyHead(weights, hidden.narrow(0, begin, length)), -1);
    parts.push_back(
        logprobs.gather(1, next.narrow(0, begin, length)).squeeze(1));
  }
  return at::cat(parts).cpu();
}

}  // namespace dapd
