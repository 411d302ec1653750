// Prompts that a limit on their tokens cuts: on the right, where they end with
// the instruction and the assistant's turn, so that the model goes on with the
// problem instead of answering it; or on the left, where the problem begins
// (prompts.truncation_side).
#pragma once

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/text_pipeline.h"

namespace dapd {

// Of the prompts in front of an answer that are known before one is sampled,
// which are the sampler's and those that show a given reference: an error (exit
// code of the configuration) if one would be cut whatever the problem; a
// warning that counts the rows of `data` where one is.
absl::Status CheckCutPrompts(const Config& config,
                             const TextPipeline& text,
                             const Dataset& data);

}  // namespace dapd
