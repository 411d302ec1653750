// The samples for a probe of the objective: recorded samples, or fresh answers
// of the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/sample_rows.h"

namespace dapd {

struct ProbeSampleOptions {
  std::string samples;   // a file as `replay` reads; empty: data.path
  std::string adapter;   // samples the answers; empty: the base
  int64_t problems = 0;  // at most
  uint64_t seed = 0;     // of the draw of problems and of the answers
};

// Returns the samples of each problem, without recorded samples that were left
// out of their step. Problems of data.path are answered once each with the
// settings of `rollout`, if a term of the objective reads rollouts; the model
// that answers is freed before this returns. Returns the errors of the files;
// CONFIG if the configuration's steps sample several answers to a problem, or
// an answer for the reference's place, which only a run does; DATA if nothing
// is left.
absl::StatusOr<std::vector<std::vector<SampleRow>>> TakeProbeSamples(
    const Config& config, const ProbeSampleOptions& options);

}  // namespace dapd
