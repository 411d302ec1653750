// Computes prompts with the packed weights (packed_weights.h), several in one
// pass, so the weights that decoding holds in a GPU's memory serve prompts,
// too. Products are cuBLAS through LibTorch; attention is one launch per layer
// (variable_length_attention.h).
//
// Bits: every product has kPrefillRows rows, of which the last are unused, and
// the head's product has kPrefillPrompts rows, or kScoredRows if it scores, so
// a prompt's numbers do not depend on the other prompts of the pass.
//
// Shapes: K key-value heads, D head_dim.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/fast/packed_projections.h"
#include "common/model/fast/packed_weights.h"
#include "common/model/score_rows.h"
#include "common/model/spec/decoding_shape.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct PrefillPrompt {
  std::span<const int32_t> ids;
  // [pages, layers, 2, K, kPageTokens, D]: receives the keys and values, from
  // the first page on. Bytes [pages, layers, 2, K, Float8PartBytes] receive
  // them as Float8 (CudaKvPages); attention within the prompts is over the
  // numbers before they are rounded. All prompts of a pass have the same kind.
  at::Tensor pages;
  // If it is not null, it receives the scores of the tokens behind the first,
  // on the device and with unused rows at the end.
  RowScores* scores = nullptr;
};

// Returns the rows of a pass over prompts of `tokens` tokens together;
// `rows_of_products` as in PrefillPrompts.
constexpr int64_t RowsOfPrefill(int64_t tokens, int64_t rows_of_products) {
  if (rows_of_products == 0) return tokens;
  return (tokens + rows_of_products - 1) / rows_of_products * rows_of_products;
}

// Fills the prompts' pages. Returns the logits after each prompt, [prompts,
// vocab] float32. There may be at most kPrefillPrompts prompts. With
// `rows_of_products` 0 products have as many rows as there are tokens. If
// `weights` are a rank's share, `sum` adds a layer's outputs over the ranks;
// otherwise it is empty. The host waits for nothing.
at::Tensor PrefillPrompts(const ModelWeights& weights,
                          const PackedWeights& packed,
                          std::span<const PrefillPrompt> prompts,
                          int64_t rows_of_products = kPrefillRows,
                          const SumOfParts& sum = nullptr);

}  // namespace dapd
