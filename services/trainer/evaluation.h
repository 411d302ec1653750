// Held-out measurements with the rollout workers' and teachers' help: accuracy
// and format rate of sampled answers, and each term's true KL divergence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/interval.h"
#include "common/objective/terms.h"
#include "common/training/policy.h"
#include "services/trainer/sample_pipeline.h"

namespace dapd {

// A term's unclipped KL, token mean a problem, then over problems.
struct TermDivergence {
  std::string name;
  Interval unclipped;
};

struct EvaluationReport {
  int64_t policy_version = 0;
  int64_t problems = 0;
  int64_t samples = 0;   // answers a problem
  Interval accuracy;     // Avg@samples over problems
  Interval format_rate;  // answers with a box
  double mean_tokens = 0.0;
  std::vector<TermDivergence> divergences;  // over evaluation.kl_problems
  double seconds = 0.0;
};

// Evaluates the policy that the workers serve. The random numbers of answer k
// to problem i are those of (run seed + 1, version, i, k), so that training
// and evaluation never share any.
absl::StatusOr<EvaluationReport> Evaluate(const Config& config,
                                          const Dataset& held_out,
                                          const ModelWeights& weights,
                                          const Policy& policy,
                                          const std::vector<Term>& terms,
                                          SamplePipeline& pipeline);

}  // namespace dapd
