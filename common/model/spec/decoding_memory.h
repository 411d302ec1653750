// What decoding takes of a GPU beside the base, the adapter and the answers'
// keys and values: one rule, for the plan (memory_plan.h) and with it for a
// worker's start, which refuses a GPU that has not that much. It counts what
// common/generation/cuda allocates, tensor by tensor, in bytes; a test holds it
// against a worker that decodes (cuda_memory_test.cc). A model whose shape
// the kernels do not take is counted alike.
//
// What of it is alive at the same time:
//   always                packed + tables + workspace + outside
//   while prompts pass    prompts, `least_prompts` for a single one
//   while policies change change; nothing is decoded then
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct DecodingMemory {
  // Of a bfloat16 model the adapter's columns in all projections; of a float32
  // one, whose adapters are merged, all projections once more.
  double packed = 0.0;
  double tables = 0.0;     // cosines and sines of all positions
  double workspace = 0.0;  // the decoder's; parts of other ranks not included
  // What others allocate: the workspace of LibTorch's products, and the graphs;
  // those of fewer rows are not needed.
  double outside = 0.0;
  double least_outside = 0.0;
  // Working set of a pass over prompts, with a page for a text that is scored.
  double prompts = 0.0;
  double least_prompts = 0.0;
  // The next adapter beside the present one, and what is made anew for it.
  double change = 0.0;

  double AtMost() const { return std::max(prompts, change); }
  double AtLeast() const { return std::max(least_prompts, change); }
};

// Of a whole model on a GPU, the columns that an adapter as configured has
// behind the stacked projections, whatever the model's precision, with its A
// and the stacked biases (common/model/fast/packed_weights.h).
double AdapterColumnBytes(const Config& config, const ModelConfig& model);

// Of one of a worker's ranks, for prompts of up to `prompt_tokens`.
DecodingMemory DecodingMemoryOf(const Config& config,
                                const ModelConfig& model,
                                int64_t prompt_tokens);

// Tokens of the longest pass over such prompts; those of its products that are
// not used included.
int64_t LongestPrefill(const Config& config, int64_t prompt_tokens);

// The same of a single prompt.
int64_t ShortestPrefill(int64_t prompt_tokens);

// Keys and values of `tokens` tokens take whole pages; tokens of those.
int64_t TokensOfPages(int64_t tokens);

}  // namespace dapd
