#include "common/model/score_rows.h"

#include <algorithm>
#include <cstdint>

namespace dapd {

RowScores ScoreRows(
    const at::Tensor& rows,
    const at::Tensor& next,
    const std::function<at::Tensor(const at::Tensor&)>& logits) {
  const at::NoGradGuard no_grad;
  const int64_t count = next.size(0);
  const at::TensorOptions floats = next.options().dtype(at::kFloat);
  const RowScores scores = {.logprobs = at::empty({count}, floats),
                            .top_ids = at::empty({count}, next.options()),
                            .top_logprobs = at::empty({count}, floats)};
  for (int64_t begin = 0; begin < count; begin += kScoredRows) {
    const auto part = [&](const at::Tensor& whole) {
      return whole.narrow(0, begin, std::min(kScoredRows, count - begin));
    };
    const at::Tensor logprobs = at::log_softmax(logits(part(rows)), -1);
    part(scores.logprobs)
        .copy_(logprobs.gather(1, part(next).unsqueeze(1)).squeeze(1));
    const auto [top_logprobs, top_ids] = logprobs.max(-1);
    part(scores.top_ids).copy_(top_ids);
    part(scores.top_logprobs).copy_(top_logprobs);
  }
  return scores;
}

}  // namespace dapd
