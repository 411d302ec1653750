// The samples that a probe of the objective looks at: recorded ones, or answers
// that the model gives for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/sample_rows.h"

namespace dapd {

struct ProbeSampleOptions {
  std::string samples;   // what `replay` reads; empty: problems of data.path
  std::string adapter;   // that answers them; empty: the base
  int64_t problems = 0;  // at most
  uint64_t seed = 0;     // of the draw of problems and of the answers
};

// One element a problem: its samples. Recorded ones that were left out of their
// step are left out. The problems of data.path are answered once each with the
// settings of `rollout`, where a term of the objective reads rollouts; the
// model that answers is gone when this returns. Errors: those of the files;
// CONFIG where the configuration's steps sample more than one answer to a
// problem, or one in the reference's place, which only a run does; DATA if
// nothing is left.
absl::StatusOr<std::vector<std::vector<SampleRow>>> TakeProbeSamples(
    const Config& config, const ProbeSampleOptions& options);

}  // namespace dapd
