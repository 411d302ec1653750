#include "common/data/expected_answer.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/config/preset_terms.h"
#include "common/data/grade_answer.h"

namespace dapd {
namespace {

constexpr size_t kMaxNamedRows = 10;

}  // namespace

std::string ExpectedAnswer(const Problem& problem) {
  return problem.answer.empty() ? ExtractBoxed(problem.solution).value_or("")
                                : problem.answer;
}

bool DependsOnGrades(const Config& config) {
  return config.rollout.source == "verified" ||
         ReadsView(ExpandTerms(config.objective), ViewName::kSiblingRollout);
}

absl::Status ApplyAnswerRule(const Config& config, Dataset* data) {
  if (!DependsOnGrades(config)) return absl::OkStatus();
  std::vector<Problem> graded;
  std::string named;
  size_t num_bad = 0;
  for (const Problem& problem : data->problems) {
    if (!ExpectedAnswer(problem).empty()) {
      graded.push_back(problem);
    } else if (num_bad++ < kMaxNamedRows) {
      absl::StrAppend(
          &named, "\n  ", problem.where, ": problem '", problem.id, "'");
    }
  }
  if (num_bad == 0) return absl::OkStatus();
  if (num_bad > kMaxNamedRows) absl::StrAppend(&named, "\n  ...");
  const std::string what = absl::StrCat(
      config.data.path,
      ": ",
      num_bad,
      " of ",
      data->problems.size(),
      " rows have nothing to grade answers against, neither in the column '",
      config.data.answer_column,
      "' nor as a \\boxed{} in '",
      config.data.solution_column,
      "', and ",
      config.rollout.source == "verified" ? "rollout.source: verified"
                                          : "sibling_rollout",
      " needs grades");
  const bool skips = config.data.on_bad_row == "skip";
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
