#include "services/trainer/step/rank_messages.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/collective/parse_rank_message.h"
#include "dapd/v1/rank.pb.h"

namespace dapd {
namespace {

v1::BatchAnswer ToMessage(const AnswerPlace& place,
                          const RolloutResult& result) {
  v1::BatchAnswer message;
  message.set_sample(place.sample);
  message.set_attempt(place.attempt);
  message.mutable_ids()->Add(result.ids.begin(), result.ids.end());
  message.mutable_logprobs()->Add(result.logprobs.begin(),
                                  result.logprobs.end());
  message.set_ended(result.finish_reason == FinishReason::kEos);
  message.set_policy_version(result.policy_version);
  message.set_adapter_digest(result.adapter_digest);
  if (result.grade.has_value()) {
    v1::AnswerGrade& grade = *message.mutable_grade();
    grade.set_correct(result.grade->correct);
    grade.set_score(result.grade->score);
    grade.set_feedback(result.grade->feedback);
    if (result.grade->ungraded.has_value()) {
      grade.set_ungraded(std::string(NameOf(*result.grade->ungraded)));
    }
  }
  return message;
}

absl::Status AddAnswer(const v1::BatchAnswer& message, PlacedAnswers* answers) {
  const auto& logprobs = message.logprobs();
  const bool is_whole =
      message.has_sample() &&
      (logprobs.empty() || logprobs.size() == message.ids_size()) &&
      std::ranges::all_of(logprobs, [](float p) { return std::isfinite(p); });
  if (!is_whole) {
    return absl::DataLossError(absl::StrCat("another trainer rank sent ",
                                            message.ids_size(),
                                            " tokens and ",
                                            logprobs.size(),
                                            " log-probabilities as the answer "
                                            "to sample ",
                                            message.sample()));
  }
  RolloutResult& answer = (*answers)[{message.sample(), message.attempt()}];
  answer.ids.assign(message.ids().begin(), message.ids().end());
  answer.logprobs.assign(logprobs.begin(), logprobs.end());
  answer.finish_reason =
      message.ended() ? FinishReason::kEos : FinishReason::kLength;
  answer.policy_version = message.policy_version();
  answer.adapter_digest = message.adapter_digest();
  if (!message.has_grade()) return absl::OkStatus();
  const v1::AnswerGrade& grade = message.grade();
  GraderResult& given = answer.grade.emplace();
  given.correct = grade.correct();
  given.score = grade.score();
  given.feedback = grade.feedback();
  if (!grade.ungraded().empty()) {
    given.ungraded = ParseName<Ungraded>(grade.ungraded());
    if (!given.ungraded.has_value()) {
      return absl::DataLossError(
          absl::StrCat("another trainer rank sent an answer that is ungraded "
                       "for an unknown reason, '",
                       Printable(grade.ungraded()),
                       "'"));
    }
  }
  return absl::OkStatus();
}

template <typename Messages>
absl::StatusOr<PlacedAnswers> FromMessages(const Messages& messages) {
  PlacedAnswers answers;
  for (const v1::BatchAnswer& message : messages) {
    RETURN_IF_ERROR(AddAnswer(message, &answers));
  }
  return answers;
}

}  // namespace

std::string SerializePlan(const StepPlan& plan) {
  v1::StepPlan message;
  message.set_step(plan.step);
  message.set_is_evaluated(plan.is_evaluated);
  for (const auto& [place, result] : plan.recalled) {
    *message.add_recalled() = ToMessage(place, result);
  }
  return message.SerializeAsString();
}

absl::StatusOr<StepPlan> ParsePlan(const std::string& bytes) {
  ASSIGN_OR_RETURN(const v1::StepPlan message,
                   ParseRankMessage<v1::StepPlan>(bytes, "the plan of a step"));
  if (!message.has_step()) {
    return absl::DataLossError("rank 0 sent a plan without its step");
  }
  StepPlan plan{.step = message.step(), .is_evaluated = message.is_evaluated()};
  ASSIGN_OR_RETURN(plan.recalled, FromMessages(message.recalled()));
  return plan;
}

std::string SerializeAnswers(const PlacedAnswers& answers) {
  v1::BatchAnswers message;
  for (const auto& [place, result] : answers) {
    *message.add_answers() = ToMessage(place, result);
  }
  return message.SerializeAsString();
}

absl::StatusOr<PlacedAnswers> ParseAnswers(const std::string& bytes) {
  ASSIGN_OR_RETURN(
      const v1::BatchAnswers message,
      ParseRankMessage<v1::BatchAnswers>(bytes, "the answers of a rank"));
  return FromMessages(message.answers());
}

}  // namespace dapd
