#include "services/trainer/record/choose_answers.h"

#include <string>

#include "common/data/expected_answer.h"

namespace dapd {
namespace {

ShownAnswer Show(const RolloutRecord& record, size_t place) {
  const std::string expected = ExpectedAnswer(*record.problem);
  return CutToShow(
      {.place = static_cast<int64_t>(place),
       .id = record.problem->id,
       .problem = record.problem->problem,
       .text = record.text,
       .expected = expected,
       .extracted = record.grade.extracted,
       // A grader of the user's own needs no box.
       .grade = GradeOf(IsGraded(record),
                        record.grade.has_box || record.given_grade.has_value(),
                        record.grade.correct,
                        record.answer.finish_reason),
       .tokens = static_cast<int64_t>(record.answer.ids.size())});
}

}  // namespace

std::vector<ShownAnswer> ChooseStepAnswers(
    const std::vector<RolloutRecord>& records) {
  std::vector<ShownAnswer> answers;
  for (const size_t place : SpreadPlaces(records.size(), kStepAnswers)) {
    // Problems have no answers if the objective trains references alone.
    if (!records[place].answer.ids.empty()) {
      answers.push_back(Show(records[place], place));
    }
  }
  return answers;
}

std::vector<ShownAnswer> ChooseHeldOutAnswers(
    const std::vector<RolloutRecord>& records, int64_t samples) {
  const auto size = static_cast<size_t>(samples);
  std::vector<ShownAnswer> answers;
  for (const size_t place :
       SpreadPlaces(records.size() / size, kHeldOutAnswers)) {
    answers.push_back(Show(records[place * size], place));
  }
  return answers;
}

}  // namespace dapd
