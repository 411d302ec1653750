#include "services/trainer/step/answer_rules.h"

#include "common/config/preset_terms.h"
#include "common/config/step_kind.h"

namespace dapd {

AnswerRules MakeAnswerRules(const Config& config, int64_t step) {
  const RolloutSection& rollout = config.rollout;
  AnswerRules rules;
  const StepKind kind = StepKindOf(config, step);
  rules.needs_answers =
      StepsNeedAnswers(config) && kind != StepKind::kReferences;
  rules.trains_references = kind != StepKind::kRollouts;
  rules.source = rollout.source;
  rules.skips_unverified = rollout.unverified == Unverified::kSkip;
  rules.group_size = rollout.group_size;
  rules.feedback = config.objective.sdpo.feedback;
  return rules;
}

AnswerRules MakeHeldOutRules(bool needs_answers) {
  return {.needs_answers = needs_answers, .shows_solution_as_sibling = true};
}

std::vector<int64_t> MembersOf(std::span<const int64_t> rows) {
  std::map<int64_t, int64_t> taken;
  std::vector<int64_t> members;
  for (const int64_t row : rows) members.push_back(taken[row]++);
  return members;
}

SamplingKey KeyOfMember(SamplingKey of_row, int64_t member) {
  of_row.sample = static_cast<uint32_t>(member * kMaxAttempts);
  return of_row;
}

SamplingKey KeyOfAttempt(SamplingKey of_member, int64_t attempt) {
  of_member.sample += static_cast<uint32_t>(attempt);
  return of_member;
}

std::vector<int64_t> WantedAttempts(const AnswerRules& rules,
                                    const AnswersByAttempt& answers) {
  if (!rules.needs_answers) return {};
  int64_t at_once = 1;
  if (rules.source == ReferenceSource::kDual) at_once = 2;
  if (rules.source == ReferenceSource::kVerified) at_once = 1 + kNumCandidates;
  std::vector<int64_t> wanted;
  for (int64_t attempt = 0; attempt < at_once; ++attempt) {
    if (!answers.contains(attempt)) wanted.push_back(attempt);
  }
  if (!wanted.empty() || rules.source != ReferenceSource::kDual) return wanted;
  const auto& [newest, answer] = *answers.rbegin();
  if (answer.ids == answers.at(0).ids && newest < 1 + kMaxResamples) {
    wanted.push_back(newest + 1);
  }
  return wanted;
}

std::optional<ReferenceChoice> ChooseReference(
    const AnswerRules& rules,
    const AnswersByAttempt& answers,
    const std::vector<bool>& is_right) {
  switch (rules.source) {
    case ReferenceSource::kGiven:
      return ReferenceChoice{};
    case ReferenceSource::kDual:
      return ReferenceChoice{.attempt = answers.rbegin()->first};
    case ReferenceSource::kVerified:
      for (size_t i = 0; i < is_right.size(); ++i) {
        if (!is_right[i]) continue;
        return ReferenceChoice{.attempt = static_cast<int64_t>(i) + 1,
                               .is_approved = true};
      }
      if (rules.skips_unverified) return std::nullopt;
      return ReferenceChoice{.attempt = 1};
  }
  return std::nullopt;
}

}  // namespace dapd
