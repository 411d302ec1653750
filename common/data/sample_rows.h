// Reads recorded samples in JSON Lines, for `views` and `replay`. The folder
// samples/ of a run folder holds such files.
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
  // One value for each token of the rollout, at temperature 1, unfiltered;
  // empty if unknown.
  std::vector<float> sampler_logprobs;
  std::string teacher;       // as in Problem: the teacher that the row names
  bool is_left_out = false;  // whether the step that recorded it left it out
  // The rollout's grade follows from these fields.
  std::string answer;           // expected answer; if empty, the reference's
                                // box
  std::optional<bool> correct;  // if set, this is the grade
  bool was_truncated = false;   // its finish_reason is "length"
  std::string feedback;         // if empty, prompts.feedback_* decide
  // Whether a grader of the user's own graded it, or was to: prompts.feedback_*
  // then decide nothing.
  bool has_given_grade = false;
};

// Reads rows with the keys {"id", "problem", "reference", "rollout_ids"} and
// the optional keys "reference_ids", "sampler_logprobs", "left_out", "answer",
// "correct", "finish_reason", "feedback", "score" or "ungraded" of a grader of
// the user's own, "teacher", and "material", the object of MaterialJson or its
// text. A run records more keys for people to see; a warning names any other
// key once. An error names file and line; an id outside a vocabulary of
// `vocab_size` is an error, too.
absl::StatusOr<std::vector<SampleRow>> ReadSampleRows(const std::string& path,
                                                      int64_t vocab_size);

// Gives each row's sample its context, as a step of a run does: groups of
// rollout.group_size rows follow each other. Does nothing if no term reads
// sibling_rollout. Returns an error that names the group if a group is
// incomplete or has several problems.
absl::Status FillContexts(const Config& config,
                          const ViewBuilder& builder,
                          std::vector<SampleRow>* rows);

// Calls ViewBuilder::Build; an error names the sample's id.
absl::StatusOr<Views> BuildViewsOf(const ViewBuilder& builder,
                                   const Sample& sample);
// Calls BuildViewsOf; returns an error if a view has more than `context` tokens
// (ModelConfig::max_positions).
absl::StatusOr<Views> BuildViewsWithin(const ViewBuilder& builder,
                                       const Sample& sample,
                                       int64_t context);

}  // namespace dapd
