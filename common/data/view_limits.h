// Finds rows that are too long. A row to train must fit the model's context and
// a pass of the trainer (trainer.pack_tokens); a row to evaluate must fit the
// context. Also finds rows with tokens that the model does not have, if the
// tokenizer knows more tokens than the model's vocabulary has
// (TextPipeline::vocab_size).
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/text_pipeline.h"

namespace dapd {

// Measures the views that the objective's terms read, with an answer of
// rollout.max_new_tokens, and the sampler's prompt and answer, which must fit
// the context only. Treats rows that do not fit as data.on_bad_row says:
// returns an error that names their places with length and limit, or token and
// id (exit code kData); or removes them from `data`, counts them in
// skipped_rows and names them in a warning. Warns of remaining rows whose
// prompt is cut (cut_prompts.h). `context` is ModelConfig::max_positions.
//
// The result depends on the arguments only, so every rank keeps the same rows.
absl::Status ApplyViewLimits(const Config& config,
                             int64_t context,
                             const TextPipeline& text,
                             Dataset* data);

// Treats held-out problems as ApplyViewLimits treats rows to train: the prompt
// and an answer of evaluation.max_new_tokens must fit `context`. Rollout
// workers refuse a row that cannot be trained or evaluated, and the refusal
// would end the run.
absl::Status ApplyHeldOutLimits(const Config& config,
                                int64_t context,
                                const TextPipeline& text,
                                Dataset* held_out);

}  // namespace dapd
