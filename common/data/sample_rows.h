// Recorded samples in JSON Lines, as `views` and `replay` read them and a run
// folder's samples/ holds them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/view_builder.h"

namespace dapd {

// {"id", "problem", "reference", "rollout_ids"}; other keys are ignored. An
// error names file and line; so does an id outside a vocabulary of
// `vocab_size`.
absl::StatusOr<std::vector<Sample>> ReadSamples(const std::string& path,
                                                int64_t vocab_size);

// ViewBuilder::Build with the sample's id in the error.
absl::StatusOr<Views> BuildViewsOf(const ViewBuilder& builder,
                                   const Sample& sample);

}  // namespace dapd
