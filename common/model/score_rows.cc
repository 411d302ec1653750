#include "common/model/score_rows.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dapd {

RowScores ScoreRows(const at::Tensor& hidden,
                    const at::Tensor& next,
                    const std::function<at::Tensor(const at::Tensor&)>& head) {
  const at::NoGradGuard no_grad;
  const int64_t count = hidden.size(0);
  const at::TensorOptions floats = hidden.options().dtype(at::kFloat);
  const RowScores scores = {.logprobs = at::empty({count}, floats),
                            .top_ids = at::empty({count}, next.options()),
                            .top_logprobs = at::empty({count}, floats)};
  for (int64_t begin = 0; begin < count; begin += kScoredRows) {
    const int64_t rows = std::min(kScoredRows, count - begin);
    const at::Tensor logprobs =
        at::log_softmax(head(hidden.narrow(0, begin, rows)), -1);
    const auto part = [&](const at::Tensor& whole) {
      return whole.narrow(0, begin, rows);
    };
    part(scores.logprobs)
        .copy_(logprobs.gather(1, part(next).unsqueeze(1)).squeeze(1));
    const auto [top_logprobs, top_ids] = logprobs.max(-1);
    part(scores.top_ids).copy_(top_ids);
    part(scores.top_logprobs).copy_(top_logprobs);
  }
  return scores;
}

}  // namespace dapd
