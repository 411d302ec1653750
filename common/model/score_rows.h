// Scores given tokens by the rows of a pass that stand in front of them: how
// probable each was, and which token was the most probable in its place.
#pragma once

#include <functional>

#include "common/tensor/aten.h"

namespace dapd {

// At temperature 1 over the whole vocabulary; [N] each, on one device.
struct RowScores {
  at::Tensor logprobs;      // float32, of the given tokens
  at::Tensor top_ids;       // int64, the most probable token
  at::Tensor top_logprobs;  // float32, of the most probable tokens
};

// At most so many rows of logits exist at a time.
inline constexpr int64_t kScoredRows = 128;

// `hidden` [N, hidden] are final-norm states and `next` [N] int64 the token
// behind each, both on one device; `head` computes the logits [rows, vocab]
// float32 of rows of `hidden`. N may be 0. Records no gradient.
RowScores ScoreRows(const at::Tensor& hidden,
                    const at::Tensor& next,
                    const std::function<at::Tensor(const at::Tensor&)>& head);

}  // namespace dapd
