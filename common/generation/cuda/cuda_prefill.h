// Prompts through the packed weights (packed_weights.h), several in one
// pass: what stands in a GPU's memory once serves them, too. Products are
// cuBLAS through LibTorch, attention is one launch a layer
// (variable_length_attention.h).
//
// Bits: every product has kPrefillRows rows, the last ones unused, and the head
// kPrefillPrompts, so a prompt's numbers do not depend on what passes with it.
//
// Shapes: K key-value heads, D head_dim.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/fast/packed_projections.h"
#include "common/model/fast/packed_weights.h"
#include "common/model/spec/decoding_shape.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct PrefillPrompt {
  std::span<const int32_t> ids;
  // [pages, layers, 2, K, kSplitTokens, D]: takes the keys and values, from the
  // first page on.
  at::Tensor pages;
};

// Fills the prompts' pages. Returns the logits after each, [prompts, vocab]
// float32. At most kPrefillPrompts. `rows_of_products` 0: products have as many
// rows as there are tokens. Where `weights` are a rank's share, `sum` is what
// it computes of a layer's outputs with the others; else it is empty. The host
// waits for nothing.
at::Tensor PrefillPrompts(const ModelWeights& weights,
                          const PackedWeights& packed,
                          std::span<const PrefillPrompt> prompts,
                          int64_t rows_of_products = kPrefillRows,
                          const SumOfParts& sum = nullptr);

}  // namespace dapd
