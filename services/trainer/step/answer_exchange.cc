#include "services/trainer/step/answer_exchange.h"

#include <span>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/rpc/transfer/served_policy.h"

namespace dapd {

absl::Status AnswerExchange::Take(const SampledStep& step,
                                  const AnswerPlace& place,
                                  const RolloutResult& result) {
  if (!ledger_.has_value()) {
    unshared_[place] = result;
    return absl::OkStatus();
  }
  const PolicyUpdate& policy = *step.policy;
  if (result.policy_version != policy.version ||
      result.adapter_digest != policy.adapter.digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("an answer to step ",
                     step.plan.step,
                     " was sampled by ",
                     PolicyName(result.policy_version, result.adapter_digest),
                     ", but the request was for ",
                     PolicyName(policy.version, policy.adapter.digest)));
  }
  const Problem& problem = ProblemOf(step, static_cast<size_t>(place.sample));
  return ledger_->disk.Write("the ledger", [&] {
    return ledger_->ledger.Accepted(step.plan.step, place, problem.id, result);
  });
}

absl::Status AnswerExchange::TakeGrade(const SampledStep& step,
                                       const AnswerPlace& place,
                                       const RolloutResult& result) {
  if (!ledger_.has_value()) {
    unshared_[place] = result;
    return absl::OkStatus();
  }
  const Problem& problem = ProblemOf(step, static_cast<size_t>(place.sample));
  return ledger_->disk.Write("the ledger", [&] {
    return ledger_->ledger.Graded(step.plan.step, place, problem.id, result);
  });
}

absl::StatusOr<std::vector<RolloutRecord>> AnswerExchange::Share(
    const SampledStep& step, const std::vector<RolloutRecord>& own) {
  // Another rank may wait longer for its workers than an operation may take.
  RETURN_IF_ERROR(collective_.AwaitAll());
  ASSIGN_OR_RETURN(const std::vector<std::string> gathered,
                   collective_.Gather(SerializeAnswers(unshared_)));
  std::vector<RolloutRecord> records;
  if (collective_.rank() != 0) return records;
  std::vector<AnswersByAttempt> answers(step.rows.size());
  for (const auto& [place, result] : step.plan.recalled) {
    answers[static_cast<size_t>(place.sample)][place.attempt] = result;
  }
  for (size_t rank = 1; rank < gathered.size(); ++rank) {
    ASSIGN_OR_RETURN(const PlacedAnswers received,
                     ParseAnswers(gathered[rank]));
    const RankSlice& theirs = step.slices[rank];
    for (const auto& [place, result] : received) {
      if (place.sample < static_cast<int64_t>(theirs.begin) ||
          place.sample >= static_cast<int64_t>(theirs.end) ||
          place.attempt < 0 || place.attempt >= kMaxAttempts) {
        return absl::DataLossError(absl::StrCat("trainer rank ",
                                                rank,
                                                " gave answer ",
                                                place.attempt,
                                                " to sample ",
                                                place.sample,
                                                "; it must give at most ",
                                                kMaxAttempts,
                                                " to each of its own samples, ",
                                                theirs.begin,
                                                " up to but not including ",
                                                theirs.end));
      }
      RETURN_IF_ERROR(Take(step, place, result));
      if (result.grade.has_value()) {
        RETURN_IF_ERROR(TakeGrade(step, place, result));
      }
      answers[static_cast<size_t>(place.sample)][place.attempt] = result;
    }
  }
  const auto group_size = static_cast<size_t>(step.rules.group_size);
  const RankSlice& mine = step.slices.front();
  for (size_t begin = 0; begin < answers.size(); begin += group_size) {
    if (begin == mine.begin) {
      records.insert(records.end(), own.begin(), own.end());
    }
    if (begin >= mine.begin && begin < mine.end) continue;
    ASSIGN_OR_RETURN(
        const std::vector<RolloutRecord> group,
        record_maker_.MakeRecords(ProblemOf(step, begin),
                                  std::span(answers).subspan(begin, group_size),
                                  step.rules));
    records.insert(records.end(), group.begin(), group.end());
  }
  return records;
}

}  // namespace dapd
