// AnswerRules: which answers a sample of a step has, and what becomes of each.
// All of it follows from the configuration and from the answers themselves, so
// results depend neither on workers nor on timing, and every rank that has the
// answers comes to the same choice.
//
// A sample's answers are counted from 0, its attempts. Attempt 0 is its
// rollout. The others, if there are any, are candidates for the reference's
// place (rollout.source):
//   reference   none: the reference is the data's solution
//   dual        attempt 1; while the newest equals attempt 0, token by token,
//               one more, at most kMaxResamples
//   verified    kNumCandidates at once
// Samples follow each other in groups of group_size that share a problem.
#pragma once

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
// Attempts of a sample are below this.
inline constexpr int64_t kMaxAttempts = 16;

struct AnswerRules {
  bool needs_answers = true;  // false: only the given references are read
  ReferenceSource source = ReferenceSource::kGiven;
  bool skips_unverified = false;  // rollout.unverified
  int64_t group_size = 1;
  FeedbackRule feedback = FeedbackRule::kNever;
  // Held-out answers have no siblings: what the self-teacher would read of one
  // is measured with the given solution in its place.
  bool shows_solution_as_sibling = false;
};

// Those of a step.
AnswerRules MakeAnswerRules(const Config& config);
// Those of a held-out answer.
AnswerRules MakeHeldOutRules(bool needs_answers);

// Of each sample of a step, which answer to its row it is: `rows` has the rows
// of all samples, those of a group side by side. A row that comes up again, in
// a batch longer than the data or at the turn of an epoch, counts on, so that
// no answer of the step is drawn twice.
std::vector<int64_t> MembersOf(std::span<const int64_t> rows);

// Of member `member` of a row, its attempt 0: the random numbers of every
// answer are those of (run seed, step, row, member, attempt).
SamplingKey KeyOfMember(SamplingKey of_row, int64_t member);
SamplingKey KeyOfAttempt(SamplingKey of_member, int64_t attempt);

using AnswersByAttempt = std::map<int64_t, RolloutResult>;

// The attempts that are to be sampled now, besides those that are there; none
// once all are, or where none is needed.
std::vector<int64_t> WantedAttempts(const AnswerRules& rules,
                                    const AnswersByAttempt& answers);

// Which attempt stands in the reference's place, of a sample whose answers are
// all there. `is_right`: of each candidate, in order, whether the grader
// approves it (verified only). Nothing: the sample is left out.
struct ReferenceChoice {
  int64_t attempt = 0;  // 0: none, the reference is the given one
  bool is_approved = false;
};
std::optional<ReferenceChoice> ChooseReference(
    const AnswerRules& rules,
    const AnswersByAttempt& answers,
    const std::vector<bool>& is_right);

}  // namespace dapd
