// Held-out measurements with the rollout workers' and teachers' help: accuracy
// (over the problems with an expected answer) and format rate of sampled
// answers, the share of them that contain evaluation.marker, and each term's
// true KL divergence.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/view_builder.h"
#include "common/terms/term.h"
#include "common/training/policy.h"
#include "services/trainer/record/evaluation_report.h"
#include "services/trainer/step/sample_pipeline.h"

namespace dapd {

// What an evaluation works with; all must outlive it.
struct EvaluationParts {
  const Config& config;
  const Dataset& held_out;
  const ModelWeights& weights;
  const Policy& policy;
  const std::vector<Term>& terms;
  const ViewBuilder& views;
  SamplePipeline& pipeline;
};

// SHA-256 of what an evaluation's shares are a function of beside the policy:
// the held-out problems, the prompt, and how answers are sampled. Empty where
// nothing is held out. evaluation.marker and evaluation.kl_problems are not in
// it: without them the other figures are the same.
std::string HeldOutDigest(const Config& config, const Dataset& held_out);

// Evaluates the policy that the workers serve, with the prompts of
// evaluation.prompt and evaluation.thinking; divergences are those of
// training's views, without the problems of which such a view is longer than
// the model's context. References are the data's solutions, whatever
// rollout.source says, and a self-teacher of siblings reads the solution in
// their place. The random numbers of answer k to problem i are those of (run
// seed + 1, version, i, k), so that training and evaluation never share any.
absl::StatusOr<EvaluationReport> Evaluate(const EvaluationParts& parts);

}  // namespace dapd
