#include "services/trainer/step/rollout_record.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/data/expected_answer.h"

namespace dapd {

bool IsGraded(const RolloutRecord& record) {
  if (record.given_grade.has_value()) {
    return !record.given_grade->ungraded.has_value();
  }
  return !ExpectedAnswer(*record.problem).empty();
}

absl::StatusOr<std::string> RecordMaker::TextOf(
    int64_t attempt, const RolloutResult& answer) const {
  return attempt == 0
             ? tokenizer_.Decode(answer.ids, /*skip_special_tokens=*/true)
             : views_.TextOf(answer.ids);
}

absl::StatusOr<GraderQuestion> RecordMaker::MakeQuestion(
    const Problem& problem,
    int64_t attempt,
    const RolloutResult& answer) const {
  GraderQuestion question = {.problem_id = problem.id,
                             .problem = problem.problem,
                             .reference = problem.solution,
                             .expected = ExpectedAnswer(problem),
                             .row_json = problem.row_json};
  ASSIGN_OR_RETURN(question.answer, TextOf(attempt, answer));
  return question;
}

bool RecordMaker::IsRight(const RolloutResult& answer,
                          const std::string& text,
                          const std::string& expected) const {
  if (!options_.has_grader) return GradeAnswer(text, expected).correct;
  return answer.grade.has_value() && answer.grade->correct;
}

absl::StatusOr<RolloutRecord> RecordMaker::MakeRecord(
    const Problem& problem,
    const AnswersByAttempt& answers,
    const AnswerRules& rules) const {
  if (!WantedAttempts(rules, answers).empty()) {
    return absl::DataLossError(absl::StrCat("some answers to problem '",
                                            problem.id,
                                            "' are missing: only ",
                                            answers.size(),
                                            " arrived"));
  }
  RolloutRecord record;
  record.problem = &problem;
  if (!rules.needs_answers) return record;
  const RolloutResult& rollout = answers.at(0);
  const std::string expected = ExpectedAnswer(problem);
  record.answer = rollout;
  if (!options_.keeps_logprobs) record.answer.logprobs.clear();
  const std::vector<int32_t>& ids = record.answer.ids;
  ASSIGN_OR_RETURN(record.text, TextOf(0, rollout));
  record.grade = GradeAnswer(record.text, expected);
  if (options_.has_grader) {
    record.given_grade = rollout.grade;
    record.grade.correct = IsRight(rollout, record.text, expected);
  }
  for (const auto& [attempt, answer] : answers) {
    record.sampled_tokens += static_cast<int64_t>(answer.ids.size());
  }
  std::vector<bool> is_right;
  if (rules.source == ReferenceSource::kVerified) {
    for (int64_t attempt = 1; attempt <= kNumCandidates; ++attempt) {
      ASSIGN_OR_RETURN(const std::string text,
                       TextOf(attempt, answers.at(attempt)));
      is_right.push_back(IsRight(answers.at(attempt), text, expected));
    }
  }
  const std::optional<ReferenceChoice> choice =
      ChooseReference(rules, answers, is_right);
  record.is_left_out = !choice.has_value();
  if (choice.has_value() && choice->attempt > 0) {
    record.is_approved = choice->is_approved;
    record.reference_ids = answers.at(choice->attempt).ids;
    ASSIGN_OR_RETURN(record.reference, views_.TextOf(record.reference_ids));
  }
  record.is_scored = !views_.ScoredTokens(ids).empty();
  record.is_trained =
      !record.is_left_out &&
      views_.IsTrained(ids,
                       record.reference_ids,
                       options_.scores_references && rules.trains_references);
  return record;
}

absl::StatusOr<std::vector<RolloutRecord>> RecordMaker::MakeRecords(
    const Problem& problem,
    std::span<const AnswersByAttempt> group,
    const AnswerRules& rules) const {
  std::vector<RolloutRecord> records;
  std::vector<GradedAnswer> graded;
  for (const AnswersByAttempt& answers : group) {
    ASSIGN_OR_RETURN(RolloutRecord record, MakeRecord(problem, answers, rules));
    graded.push_back({record.text, record.grade.correct, ""});
    if (options_.has_grader) {
      if (record.given_grade.has_value()) {
        graded.back().feedback = record.given_grade->feedback;
      }
    } else if (rules.feedback != FeedbackRule::kNever) {
      graded.back().feedback = views_.prompts().Feedback(
          record.grade.correct,
          ExtractBoxed(record.text),
          record.answer.finish_reason == FinishReason::kLength,
          problem.source().columns());
    }
    records.push_back(std::move(record));
  }
  const std::vector<TeacherContext> contexts =
      TeacherContexts(graded, rules.feedback);
  for (size_t i = 0; options_.reads_siblings && i < records.size(); ++i) {
    records[i].context = contexts[i];
    if (rules.shows_solution_as_sibling) {
      records[i].context = {.sibling = problem.solution};
    }
  }
  return records;
}

}  // namespace dapd
