// The GPU memory that decoding takes beside the base, the adapter and the
// keys and values of the answers. The plan (memory_plan.h) uses this rule, and
// so a worker refuses at its start a GPU that has less. The rule counts the
// tensors that common/generation/cuda allocates, in bytes;
// cuda_memory_test.cc compares it with a worker that decodes. A model whose
// shape the kernels do not support is counted alike.
//
// These parts are in use at the same time:
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
  // In a bfloat16 model, the adapter's columns in all projections; in a float32
  // model, which merges adapters, a second copy of all projections.
  double packed = 0.0;
  double tables = 0.0;     // cosines and sines of all positions
  double workspace = 0.0;  // the decoder's, without parts of other ranks
  // Allocations outside the decoder: the workspace of LibTorch's products, and
  // the CUDA graphs. `least_outside` is without the graphs of fewer rows, which
  // a worker can do without.
  double outside = 0.0;
  double least_outside = 0.0;
  // Working set of a pass over prompts, with a page for a scored text.
  double prompts = 0.0;
  double least_prompts = 0.0;
  // The next adapter beside the present one, and the tensors derived from it.
  double change = 0.0;

  double AtMost() const { return std::max(prompts, change); }
  double AtLeast() const { return std::max(least_prompts, change); }
};

// Returns the bytes, for a whole model on a GPU in any precision, of the
// columns that the configured adapter has behind the stacked projections, with
// its A and the stacked biases (common/model/fast/packed_weights.h).
double AdapterColumnBytes(const Config& config, const ModelConfig& model);

// Returns the memory of one rank of a worker for prompts of up to
// `prompt_tokens`.
DecodingMemory DecodingMemoryOf(const Config& config,
                                const ModelConfig& model,
                                int64_t prompt_tokens);

// Returns the most nodes of the graph of a decoder's step (cuda_decode_step.h),
// for `ranks` ranks that share a model of so many layers.
int64_t NodesOfStep(int64_t num_layers, int64_t ranks);

// Returns the tokens of the longest pass over such prompts, including tokens
// whose products are not used.
int64_t LongestPrefill(const Config& config, int64_t prompt_tokens);

// Returns the tokens of a pass over a single prompt, as LongestPrefill counts.
int64_t ShortestPrefill(int64_t prompt_tokens);

// Returns the number of tokens in the whole pages that the keys and values of
// `tokens` tokens take.
int64_t TokensOfPages(int64_t tokens);

}  // namespace dapd
