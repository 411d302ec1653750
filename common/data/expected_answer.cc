#include "common/data/expected_answer.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/config/preset_terms.h"
#include "common/data/grade_answer.h"

namespace dapd {
namespace {

constexpr size_t kMaxNamedAnswers = 10;
constexpr size_t kLongestAnswer = 100;

// Returns an empty text if `text` states no result.
std::string StatedResult(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  absl::string_view last_line = text.substr(text.rfind('\n') + 1);
  if (absl::ConsumePrefix(&last_line, "#### ")) {
    return std::string(absl::StripAsciiWhitespace(last_line));
  }
  return ExtractBoxed(text).value_or("");
}

// Returns the text that holds a problem's expected answer.
const std::string& SourceOf(const Problem& problem) {
  return absl::StripAsciiWhitespace(problem.answer).empty() ? problem.solution
                                                            : problem.answer;
}

bool HasLastLine(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  return absl::StartsWith(text.substr(text.rfind('\n') + 1), "#### ");
}

// Warns if it is not clear what answers state: they have several boxes, or a
// box that is never closed.
void WarnOfUnclearAnswers(const std::string& path, const Dataset& data) {
  size_t num_unclear = 0;
  std::string first;
  for (const Problem& problem : data.problems) {
    const std::string& source = SourceOf(problem);
    if (HasLastLine(source) || !IsUnclear(source)) continue;
    if (num_unclear++ == 0) {
      first = absl::StrCat(
          problem.where, ", where it is '", ExpectedAnswer(problem), "'");
    }
  }
  if (num_unclear == 0) return;
  LogWarning(absl::StrCat(
      path,
      ": ",
      num_unclear,
      " of ",
      data.problems.size(),
      " expected answers are in texts with several \\boxed{} that do not form "
      "one statement, or with a \\boxed{} that is never closed; the last "
      "closed \\boxed{} counts, the first such text is in ",
      first,
      "; write all parts of an answer into one \\boxed{}, or name a column of "
      "short answers"));
}

bool IsLong(absl::string_view answer) {
  answer = absl::StripAsciiWhitespace(answer);
  return answer.size() > kLongestAnswer || absl::StrContains(answer, '\n');
}

}  // namespace

std::string ExpectedAnswer(absl::string_view answer,
                           absl::string_view solution) {
  if (absl::StripAsciiWhitespace(answer).empty()) {
    return StatedResult(solution);
  }
  std::string result = StatedResult(answer);
  return result.empty() ? std::string(answer) : result;
}

std::string ExpectedAnswer(const Problem& problem) {
  return ExpectedAnswer(problem.answer, problem.solution);
}

void WarnOfBadAnswers(const std::string& path,
                      const std::string& setting,
                      const Dataset& data) {
  size_t num_answers = 0;
  size_t num_long = 0;
  std::string first;
  for (const Problem& problem : data.problems) {
    const std::string answer = ExpectedAnswer(problem);
    if (!answer.empty()) ++num_answers;
    if (IsLong(answer) && num_long++ == 0) first = problem.where;
  }
  WarnOfUnclearAnswers(path, data);
  if (2 * num_long <= num_answers) return;
  LogWarning(absl::StrCat(
      path,
      ": ",
      num_long,
      " of ",
      num_answers,
      " expected answers are whole texts, the first in ",
      first,
      ", and boxed answers will not equal them; name the column of the short "
      "answers with ",
      setting,
      ", or end each text with its result: a line '#### 72', or \\boxed{72}"));
}

void WarnOfUngradedProblems(const Config& config, const Dataset& held_out) {
  if (config.grader.is_given()) return;
  size_t num_ungraded = 0;
  std::string first;
  for (const Problem& problem : held_out.problems) {
    if (ExpectedAnswer(problem).empty() && num_ungraded++ == 0) {
      first = problem.where;
    }
  }
  if (num_ungraded == 0) return;
  const size_t problems = held_out.problems.size();
  const bool is_all = num_ungraded == problems;
  LogWarning(absl::StrCat(
      config.evaluation.path,
      ": ",
      num_ungraded,
      " of ",
      problems,
      " held-out problems have no expected answer, the first in ",
      first,
      is_all ? ": the run will have no accuracy"
             : "; the accuracy is over the others",
      is_all && config.evaluation.interval > 0 ? ", and no adapter-best/" : "",
      "; data.answer_column names the column of the answers"));
}

bool DependsOnGrades(const Config& config) {
  return config.rollout.source == ReferenceSource::kVerified ||
         ReadsView(ExpandTerms(config.objective), ViewName::kSiblingRollout);
}

absl::Status ApplyAnswerRule(const Config& config, Dataset* data) {
  if (!DependsOnGrades(config) || config.grader.is_given()) {
    return absl::OkStatus();
  }
  std::vector<Problem> graded;
  std::string named;
  size_t num_bad = 0;
  for (const Problem& problem : data->problems) {
    if (!ExpectedAnswer(problem).empty()) {
      graded.push_back(problem);
    } else if (num_bad++ < kMaxNamedAnswers) {
      absl::StrAppend(
          &named, "\n  ", problem.where, ": problem '", problem.id, "'");
    }
  }
  if (num_bad == 0) return absl::OkStatus();
  if (num_bad > kMaxNamedAnswers) absl::StrAppend(&named, "\n  ...");
  const std::string what = absl::StrCat(
      config.data.path,
      ": ",
      num_bad,
      " of ",
      data->problems.size(),
      " rows have nothing to grade answers against, neither in the column '",
      config.data.answer_column,
      "' nor as a line '#### 72' or a \\boxed{} in '",
      config.data.solution_column,
      "', and ",
      config.rollout.source == ReferenceSource::kVerified
          ? "rollout.source: verified"
          : "sibling_rollout",
      " needs grades");
  const bool skips = config.data.on_bad_row == OnBadRow::kSkip;
  if (!skips || graded.empty()) {
    return DataError(absl::StrCat(
        what,
        skips ? "" : "; add answers, or skip them with data.on_bad_row: skip",
        named));
  }
  LogWarning(absl::StrCat(what, "; left out (data.on_bad_row: skip)", named));
  data->problems = std::move(graded);
  data->skipped_rows += static_cast<int64_t>(num_bad);
  data->digest = DigestOf(data->problems);
  return absl::OkStatus();
}

}  // namespace dapd
