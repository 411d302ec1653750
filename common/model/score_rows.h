// Scores given tokens by the rows of a pass that stand in front of them: how
// probable each was, and which token was the most probable in its place.
#pragma once

#include <functional>

#include "common/model/spec/decoding_shape.h"
#include "common/tensor/aten.h"

namespace dapd {

// At temperature 1 over the whole vocabulary; [N] each, on one device.
struct RowScores {
  at::Tensor logprobs;      // float32, of the given tokens
  at::Tensor top_ids;       // int64, the most probable token
  at::Tensor top_logprobs;  // float32, of the most probable tokens
};

// `rows` [N, ...] stand for the rows, such as their states or their indices,
// and `next` [N] int64 are the tokens behind them, both on one device; `logits`
// computes [R, vocab] float32 for R of `rows`, kScoredRows at most. N may be 0.
// Records no gradient.
RowScores ScoreRows(const at::Tensor& rows,
                    const at::Tensor& next,
                    const std::function<at::Tensor(const at::Tensor&)>& logits);

}  // namespace dapd
