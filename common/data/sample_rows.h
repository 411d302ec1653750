// Recorded samples in JSON Lines, as `views` and `replay` read them and a run
// folder's samples/ holds them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/view_builder.h"

namespace dapd {

struct SampleRow {
  Sample sample;
  // One per token of the rollout, at temperature 1, unfiltered; empty: unknown.
  std::vector<float> sampler_logprobs;
  bool is_left_out = false;  // of the step that recorded it
  // What the rollout's grade follows from.
  std::string answer;           // the expected one; empty: the reference's box
  std::optional<bool> correct;  // given: the grade itself
  bool was_truncated = false;   // its finish_reason is "length"
  std::string feedback;         // empty: what prompts.feedback_* say
};

// {"id", "problem", "reference", "rollout_ids"} and, where there are such,
// "reference_ids", "sampler_logprobs", "left_out", "answer", "correct",
// "finish_reason", "feedback". A run records more for people to see; any other
// key is warned of once. An error names file and line; so does an id outside a
// vocabulary of `vocab_size`.
absl::StatusOr<std::vector<SampleRow>> ReadSampleRows(const std::string& path,
                                                      int64_t vocab_size);

// Gives each row's sample its context, as a step of a run would: rows follow
// each other in groups of rollout.group_size. Does nothing where no term reads
// sibling_rollout. An error names the group that is not whole, or not of one
// problem.
absl::Status FillContexts(const Config& config,
                          const ViewBuilder& builder,
                          std::vector<SampleRow>* rows);

// ViewBuilder::Build with the sample's id in the error.
absl::StatusOr<Views> BuildViewsOf(const ViewBuilder& builder,
                                   const Sample& sample);
// The same, and an error if a view has more than `context` tokens
// (ModelConfig::max_positions).
absl::StatusOr<Views> BuildViewsWithin(const ViewBuilder& builder,
                                       const Sample& sample,
                                       int64_t context);

}  // namespace dapd
