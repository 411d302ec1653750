// log p(ids[t+1] | ids[0..t]) of a token sequence, for `dapd score` and for the
// proof that a worker serves the weights that it was sent.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/reference/decoder.h"
#include "common/model/score_rows.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns [T - 1] float32 on the CPU, temperature 1, over the whole vocabulary,
// for T >= 1 ids. The head runs over chunks of tokens. Records no gradient.
// `sum` as in ForwardHidden (decoder.h).
at::Tensor TokenLogprobs(const ModelWeights& weights,
                         const Adapter* adapter,
                         const std::vector<int32_t>& ids,
                         const SumOverRanks& sum = nullptr);

// Returns the same log-probabilities and, beside each, the most probable token
// in its place, on the CPU.
RowScores TokenScores(const ModelWeights& weights,
                      const Adapter* adapter,
                      const std::vector<int32_t>& ids,
                      const SumOverRanks& sum = nullptr);

}  // namespace dapd
