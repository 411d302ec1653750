// Computes final-norm hidden states of the scored tokens of several views in
// one packed pass: nothing is padded, a view that is a prefix of another view
// shares its pass, and only the positions that predict a scored token are
// returned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/reference/decoder.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"
#include "common/terms/view.h"

namespace dapd {

// Returns the views of a sample named in `names`, in that order.
std::vector<const View*> Pick(const Views& views,
                              const std::vector<ViewName>& names);

// Returns the number of a view's tokens before its last scored token.
int64_t NeededTokens(const View& view);

// The content of one pass: token sequences side by side and, for every view,
// the sequence that contains it. Sequences end with the last token that is
// needed.
struct PassPlan {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<size_t> sequence_of_view;
  int64_t num_tokens = 0;
};
PassPlan PlanPass(std::span<const View* const> views);

// The packed tokens of a plan, and the rows that predict scored tokens.
struct PackedViews {
  PassPlan plan;
  PackedTokens tokens;
  at::Tensor rows;              // [sum of counts] int64, view by view
  std::vector<int64_t> counts;  // scored_count of each view
};
// All views must have scored_from >= 1 and scored_count >= 1.
PackedViews PackViews(std::span<const View* const> views, at::Device device);

// Returns [scored_count, hidden] for each view: row i predicts token
// scored_from + i. Differentiable like ForwardHidden.
std::vector<at::Tensor> HiddenOfViews(const ModelWeights& weights,
                                      const Adapter* adapter,
                                      std::span<const View* const> views);

}  // namespace dapd
