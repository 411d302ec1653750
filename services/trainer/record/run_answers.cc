#include "services/trainer/record/run_answers.h"

#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::optional<ShownAnswer>& answer) {
  return answer.has_value() ? ToJson(std::vector{*answer}).front() : Json();
}

Json OrNull(const std::optional<int64_t>& number) {
  return number.has_value() ? Json(*number) : Json();
}

}  // namespace

Json ToJson(const AnswersToShow& answers) {
  Json pairs = Json::array();
  for (const AnswerPair& pair : answers.held_out) {
    pairs.push_back(
        {{"before", OrNull(pair.before)}, {"after", OrNull(pair.after)}});
  }
  return {{"step", answers.step.step},
          {"answers", ToJson(answers.step.answers)},
          {"held_out",
           {{"before", OrNull(answers.before)},
            {"after", OrNull(answers.after)},
            {"pairs", std::move(pairs)}}}};
}

void RunAnswers::ShowStep(StepAnswers answers) {
  MutexLock lock(&mutex_);
  step_ = std::move(answers);
}

void RunAnswers::ShowEvaluation(const EvaluationReport& report) {
  if (report.answers.empty()) return;
  const HeldOut held_out = {.policy_version = report.policy_version,
                            .answers = report.answers};
  MutexLock lock(&mutex_);
  if (!first_.has_value() ||
      held_out.policy_version <= first_->policy_version) {
    first_ = held_out;
  }
  if (!newest_.has_value() ||
      held_out.policy_version >= newest_->policy_version) {
    newest_ = held_out;
  }
}

AnswersToShow RunAnswers::Get() const {
  MutexLock lock(&mutex_);
  AnswersToShow shown{.step = step_};
  if (!first_.has_value()) return shown;
  shown.before = first_->policy_version;
  std::vector<ShownAnswer> after;
  if (newest_->policy_version > first_->policy_version) {
    shown.after = newest_->policy_version;
    after = newest_->answers;
  }
  shown.held_out = PairAnswers(first_->answers, after);
  return shown;
}

absl::Status RecallAnswers(const std::string& folder, RunAnswers* answers) {
  ASSIGN_OR_RETURN(StepAnswers newest,
                   ReadStepAnswers(JoinPath(folder, "answers.jsonl"), 0));
  answers->ShowStep(std::move(newest));
  ASSIGN_OR_RETURN(const std::vector<NamedEvaluation> evaluations,
                   ReadComparableEvaluations(folder));
  for (const auto& [when, report] : evaluations) {
    answers->ShowEvaluation(report);
  }
  return absl::OkStatus();
}

}  // namespace dapd
