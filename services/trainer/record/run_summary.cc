#include "services/trainer/record/run_summary.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/files.h"
#include "common/base/json.h"

namespace dapd {

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
  const auto before = summary.evaluations.find("before");
  const auto after = summary.evaluations.find("after");
  if (before != summary.evaluations.end() &&
      after != summary.evaluations.end()) {
    text += CompareEvaluations(before->second, after->second);
    absl::StrAppend(
        &text, "  answers:        dapd answers ", summary.folder, "\n");
  }
  for (const ClipFinding& finding : summary.clip_findings) {
    absl::StrAppend(&text, "  warning: ", Describe(finding), "\n");
  }
  absl::StrAppend(&text, "  adapter (PEFT): ", summary.folder, "/adapter\n");
  if (summary.has_evaluations_within && !summary.best.empty()) {
    const EvaluationReport& best = summary.evaluations.at(summary.best);
    absl::StrAppend(&text,
                    "  best on held-out problems: step ",
                    best.policy_version,
                    ",",
                    PercentText(*best.accuracy),
                    ", in ",
                    summary.folder,
                    "/adapter-best\n");
  }
  absl::StrAppend(&text, "  report:         ", summary.folder, "/report.html");
  return text;
}

}  // namespace dapd
