// AnswerRules: the answers that a sample of a step has, and their use.
// Everything follows from the configuration and from the answers themselves, so
// results depend neither on workers nor on timing, and all ranks that have the
// answers make the same choice.
//
// A sample's answers are its attempts, counted from 0. Attempt 0 is its
// rollout. The further attempts, if there are any, are candidates for the
// reference's place (rollout.source):
//   reference   none: the reference is the data's solution
//   dual        attempt 1; while the newest attempt equals attempt 0, token by
//               token, one more, at most kMaxResamples
//   verified    kNumCandidates at once
// Samples follow each other in groups of group_size that share a problem.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/config/config.h"
#include "common/generation/sampling.h"
#include "services/trainer/workers/rollout_task.h"

namespace dapd {

inline constexpr int64_t kMaxResamples = 8;
inline constexpr int64_t kNumCandidates = 4;
// Every attempt is below this.
inline constexpr int64_t kMaxAttempts = 16;

// An answer of a step.
struct AnswerPlace {
  int64_t sample = 0;   // its place in the batch
  int64_t attempt = 0;  // among the sample's answers
  auto operator<=>(const AnswerPlace&) const = default;
};

struct AnswerRules {
  bool needs_answers = true;  // false: only the given references are read
  // false: no term trains a reference in this step (StepKind::kRollouts)
  bool trains_references = true;
  ReferenceSource source = ReferenceSource::kGiven;
  bool skips_unverified = false;  // rollout.unverified
  int64_t group_size = 1;
  FeedbackRule feedback = FeedbackRule::kNever;
  // Held-out answers have no siblings: a self-teacher that reads siblings gets
  // the given solution instead.
  bool shows_solution_as_sibling = false;
  // Whether a grader of the user's own is asked about the answers.
  bool needs_grades = true;
};

// Returns the rules of training step `step`, from 1.
AnswerRules MakeAnswerRules(const Config& config, int64_t step);
// Returns the rules of held-out answers.
AnswerRules MakeHeldOutRules(bool needs_answers);

// Returns, for each sample of a step, the number of its answer among the
// answers to its row: `rows` has the rows of all samples, a group's samples
// side by side. If a row occurs again, in a batch longer than the data or at
// the turn of an epoch, its numbers continue, so that no answer of the step is
// drawn twice.
std::vector<int64_t> MembersOf(std::span<const int64_t> rows);

// Returns the key of attempt 0 of member `member` of a row. The random numbers
// of every answer are keyed by (run seed, step, row, member, attempt).
SamplingKey KeyOfMember(SamplingKey of_row, int64_t member);
SamplingKey KeyOfAttempt(SamplingKey of_member, int64_t attempt);

using AnswersByAttempt = std::map<int64_t, RolloutResult>;

// Returns the attempts that must be sampled now, besides those in `answers`;
// empty if no further answer is needed.
std::vector<int64_t> WantedAttempts(const AnswerRules& rules,
                                    const AnswersByAttempt& answers);

// The attempt that stands in the reference's place.
struct ReferenceChoice {
  int64_t attempt = 0;  // 0: none; the reference is the data's solution
  bool is_approved = false;
};
std::optional<ReferenceChoice> ChooseReference(
    const AnswerRules& rules,
    const AnswersByAttempt& answers,
    const std::vector<bool>& is_right);

}  // namespace dapd
