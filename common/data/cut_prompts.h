// Reports prompts that a limit on their tokens cuts. A prompt that is cut on
// the right loses the instruction and the assistant's turn, so that the model
// continues the problem instead of answering it. A prompt that is cut on the
// left loses the beginning of the problem (prompts.truncation_side).
#pragma once

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/material_meter.h"
#include "common/data/text_pipeline.h"

namespace dapd {

// Checks the prompts that are known before an answer is sampled: the sampler's
// prompt and the prompts that show a given reference. Returns an error (exit
// code kConfig) if a prompt would be cut whatever the problem is. Logs a
// warning that counts the rows of `data` with a cut prompt. `materials` renders
// as text.views does.
absl::Status CheckCutPrompts(const Config& config,
                             const TextPipeline& text,
                             const Dataset& data,
                             MaterialMeter& materials);

}  // namespace dapd
