// Rows that are too long: to be trained, for the model's context or for one
// pass of the trainer (trainer.pack_tokens); to be evaluated, for the context.
// And rows with tokens that the model does not have, where the tokenizer knows
// more than its vocabulary (TextPipeline::vocab_size).
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/text_pipeline.h"

namespace dapd {

// Measures the views that the objective's terms read, with an answer of
// rollout.max_new_tokens, and what is sampled, which only the context has to
// take. Does with the rows that do not fit what data.on_bad_row says: an error
// that names them by place, length and limit, or token and id (exit code of the
// data), or they are left out of `data`, counted in skipped_rows and named in a
// warning. Of the rows that are left, warns of those whose prompt is cut
// (cut_prompts.h). `context`: ModelConfig::max_positions.
//
// A function of its arguments only, so every rank is left with the same rows.
absl::Status ApplyViewLimits(const Config& config,
                             int64_t context,
                             const TextPipeline& text,
                             Dataset* data);

// The same for held-out problems, whose prompt and an answer of
// evaluation.max_new_tokens have to fit `context`. Rollout workers refuse a row
// that cannot be trained or evaluated, which would end the run.
absl::Status ApplyHeldOutLimits(const Config& config,
                                int64_t context,
                                const TextPipeline& text,
                                Dataset* held_out);

}  // namespace dapd
