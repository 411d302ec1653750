#include "services/trainer/record/run_summary.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "services/trainer/record/claim_rise.h"

namespace dapd {
namespace {

std::optional<EvaluationReport> Find(
    const std::map<std::string, EvaluationReport>& evaluations,
    const std::string& when) {
  const auto found = evaluations.find(when);
  if (found == evaluations.end()) return std::nullopt;
  return found->second;
}

}  // namespace

absl::Status WriteSummary(const RunSummary& summary) {
  using Json = nlohmann::ordered_json;
  Json evaluations = Json::object();
  for (const auto& [when, report] : summary.evaluations) {
    evaluations[when] = ToJson(report);
  }
  return WriteFileAtomically(
      JoinPath(summary.folder, "summary.json"),
      Json{{"steps", summary.steps},
           {"seconds", summary.seconds},
           {"seconds_by_phase", summary.seconds_by_phase},
           {"evaluation", evaluations},
           {"best", summary.best}}
              .dump(2) +
          "\n");
}

std::string ClosingText(const RunSummary& summary) {
  std::vector<std::string> phases;
  for (const auto& [phase, seconds] : summary.seconds_by_phase) {
    phases.push_back(absl::StrFormat("%s %.0f s", phase, seconds));
  }
  const bool goes_on = summary.start_step > 0;
  std::string text = absl::StrFormat(
      "done: %d steps%s in %.0f s (%s%s)\n",
      summary.steps,
      goes_on ? absl::StrCat(", those after step ", summary.start_step) : "",
      summary.seconds,
      goes_on ? "all: " : "",
      absl::StrJoin(phases, ", "));
  const auto before = Find(summary.evaluations, "before");
  const auto after = Find(summary.evaluations, "after");
  if (before.has_value() || after.has_value()) {
    text += CompareEvaluations(before, after);
    absl::StrAppend(
        &text, "  answers:        dapd answers ", summary.folder, "\n");
  }
  for (const ClipFinding& finding : summary.clip_findings) {
    absl::StrAppend(&text, "  warning: ", Describe(finding), "\n");
  }
  if (const auto rise = FindClaimRise(summary.evaluations); rise.has_value()) {
    absl::StrAppend(&text, "  warning: ", Describe(*rise), "\n");
  }
  absl::StrAppend(&text, "  adapter (PEFT): ", summary.folder, "/adapter\n");
  if (summary.has_evaluations_within && !summary.best.empty()) {
    const EvaluationReport& best = summary.evaluations.at(summary.best);
    absl::StrAppend(&text,
                    "  best on held-out problems: step ",
                    best.policy_version,
                    ", ",
                    PercentText(*best.accuracy),
                    ", in ",
                    summary.folder,
                    "/adapter-best\n");
  }
  absl::StrAppend(&text, "  report:         ", summary.folder, "/report.html");
  return text;
}

}  // namespace dapd
