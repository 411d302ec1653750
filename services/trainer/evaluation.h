// Held-out measurements, with the help of rollout workers and teachers: the
// accuracy (over the problems with an expected answer) and format rate of
// sampled answers, the share of answers that contain evaluation.marker, each
// term's true KL divergence, and how probable claims are (claim_meter.h).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/view_builder.h"
#include "common/terms/term.h"
#include "common/tokenizer/tokenizer.h"
#include "common/training/policy.h"
#include "services/trainer/record/evaluation_report.h"
#include "services/trainer/step/sample_pipeline.h"

namespace dapd {

// Keeps what a grader of the user's own says about held-out answers, so that an
// evaluation that is done again does not ask it again. The index is that of the
// answer among all answers of the evaluation. Either function may be empty.
struct HeldOutGrades {
  OnGraded keep;
  KnownGrade recall;
};

// All referenced objects must outlive the evaluation.
struct EvaluationParts {
  const Config& config;
  const Dataset& held_out;
  const ModelWeights& weights;
  const Policy& policy;
  const std::vector<Term>& terms;
  const Tokenizer& tokenizer;
  const ViewBuilder& views;
  SamplePipeline& pipeline;
  const TeacherHeads& teacher_heads;
  HeldOutGrades grades = {};
};

// Returns the SHA-256 of everything besides the policy that determines an
// evaluation's shares: the held-out problems, the prompt, and how answers are
// sampled; empty if nothing is held out. evaluation.marker, evaluation.claims
// and evaluation.kl_problems are left out: they do not change the other
// figures.
std::string HeldOutDigest(const Config& config, const Dataset& held_out);

// Evaluates the policy that the workers serve, with the prompts of
// evaluation.prompt and evaluation.thinking. The divergences are measured over
// training's views; a problem with a view that exceeds the model's context is
// left out of them. Claims are measured on the same answers, in None and, if a
// term reads a Cross view, in Cross; an answer behind which the openings of
// claims exceed the context is left out. References are the data's solutions,
// whatever rollout.source says, and a self-teacher of siblings reads the
// solution instead of a sibling. The random numbers of answer k to problem i
// are keyed by (run seed + 1, version, i, k), so training and evaluation never
// share any.
absl::StatusOr<EvaluationReport> Evaluate(const EvaluationParts& parts);

}  // namespace dapd
