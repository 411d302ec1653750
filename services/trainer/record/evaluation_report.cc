#include "services/trainer/record/evaluation_report.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/list_folder.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/data/marker_label.h"
#include "services/trainer/record/loss_text.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxEvaluationBytes = uint64_t{1} << 24;
constexpr char kDivergenceProblems[] = "unclipped_divergence_problems";
constexpr char kClaims[] = "claim_probability";
constexpr char kClaimProblems[] = "claim_probability_problems";
constexpr char kKeptClaimAnswers[] = "claim_answers";

absl::StatusOr<EvaluationReport> ParseEvaluationReport(
    const Json& json, const std::string& where) try {
  EvaluationReport report;
  report.policy_version = json.at("policy_version");
  report.adapter_digest = json.value("adapter_digest", "");
  report.held_out_digest = json.value("held_out_digest", "");
  report.problems = json.at("problems");
  report.samples = json.at("samples");
  report.graded_problems = json.value("graded_problems", report.problems);
  if (json.contains("accuracy")) {
    report.accuracy = ParseInterval(json["accuracy"]);
  }
  report.format_rate = ParseInterval(json.at("format_rate"));
  if (json.contains("marker_rate")) {
    report.marker = json.at("marker");
    report.marker_rate = ParseInterval(json.at("marker_rate"));
  }
  if (json.contains("truncated")) {
    report.truncated = ParseInterval(json["truncated"]);
  }
  if (json.contains("repeated")) {
    report.repeated = ParseInterval(json["repeated"]);
  }
  report.mean_tokens = json.at("mean_tokens");
  const Json counts = json.value(kDivergenceProblems, Json::object());
  for (const auto& [name, interval] : json.at("unclipped_divergence").items()) {
    report.divergences.push_back(
        {name, ParseInterval(interval), counts.value(name, int64_t{0})});
  }
  if (json.contains(kClaims)) {
    report.claims = ParseClaimFigures(json[kClaims]);
    report.claims->problems = json.at(kClaimProblems);
    if (json.contains(kKeptClaimAnswers)) {
      report.claims->answers = ParseClaimAnswers(json[kKeptClaimAnswers]);
    }
  }
  report.seconds = json.at("seconds");
  if (json.contains("answers")) {
    ASSIGN_OR_RETURN(report.answers, ParseShownAnswers(json["answers"], where));
  }
  return report;
} catch (const Json::exception& error) {
  return absl::DataLossError(
      absl::StrCat(where, " holds no evaluation: ", error.what()));
}

// A line of the closing summary.
struct ShareRow {
  std::string label;
  std::optional<Interval> before;
  std::optional<Interval> after;
};

std::optional<Interval> FormatRate(
    const std::optional<EvaluationReport>& report) {
  if (!report.has_value()) return std::nullopt;
  return report->format_rate;
}

// Aligns the decimal points of a column.
std::string ShareText(const std::optional<Interval>& share) {
  if (!share.has_value()) return "    -";
  const std::string text = PercentText(*share);
  return absl::StrCat(std::string(5 - text.find(' '), ' '), text);
}

// Returns the divergence of the term with this name.
std::string DivergenceText(const EvaluationReport& report,
                           const std::string& name) {
  const auto found =
      std::ranges::find(report.divergences, name, &TermDivergence::name);
  if (found == report.divergences.end()) return "-";
  return LossText(found->unclipped);
}

// Returns the probability of claims in None or in Cross.
std::string ClaimText(const EvaluationReport& report, bool in_cross) {
  if (!report.claims.has_value()) return "-";
  const ClaimFigures& claims = *report.claims;
  if (!in_cross) return LossText(claims.none);
  return claims.cross.has_value() ? LossText(*claims.cross) : "-";
}

}  // namespace

Json ToJson(const EvaluationReport& report) {
  Json divergences = Json::object();
  Json counts = Json::object();
  for (const TermDivergence& term : report.divergences) {
    divergences[term.name] = ToJson(term.unclipped);
    if (term.problems > 0) counts[term.name] = term.problems;
  }
  Json json = {{"policy_version", report.policy_version},
               {"adapter_digest", report.adapter_digest},
               {"held_out_digest", report.held_out_digest},
               {"problems", report.problems},
               {"samples", report.samples},
               {"graded_problems", report.graded_problems}};
  if (report.accuracy.has_value()) json["accuracy"] = ToJson(*report.accuracy);
  json["format_rate"] = ToJson(report.format_rate);
  if (report.marker_rate.has_value()) {
    json["marker"] = report.marker;
    json["marker_rate"] = ToJson(*report.marker_rate);
  }
  if (report.truncated.has_value()) {
    json["truncated"] = ToJson(*report.truncated);
  }
  if (report.repeated.has_value()) json["repeated"] = ToJson(*report.repeated);
  json["mean_tokens"] = report.mean_tokens;
  json["unclipped_divergence"] = divergences;
  json[kDivergenceProblems] = counts;
  if (report.claims.has_value()) {
    json[kClaims] = ToJson(*report.claims);
    json[kClaimProblems] = report.claims->problems;
  }
  json["seconds"] = report.seconds;
  return json;
}

std::string PercentText(const Interval& interval) {
  return absl::StrFormat("%.1f %% [%.1f, %.1f]",
                         100 * interval.mean,
                         100 * interval.low,
                         100 * interval.high);
}

std::string AccuracyText(const EvaluationReport& report) {
  if (!report.accuracy.has_value()) {
    return "no accuracy (no problem has an expected answer)";
  }
  std::string text = absl::StrCat("accuracy ", PercentText(*report.accuracy));
  if (report.graded_problems < report.problems) {
    absl::StrAppend(&text,
                    " of the ",
                    report.graded_problems,
                    " problems with an expected answer");
  }
  return text;
}

std::string CompareEvaluations(const std::optional<EvaluationReport>& before,
                               const std::optional<EvaluationReport>& after) {
  const EvaluationReport a = before.value_or(EvaluationReport());
  const EvaluationReport b = after.value_or(EvaluationReport());
  std::vector<ShareRow> rows;
  if (a.accuracy.has_value() || b.accuracy.has_value()) {
    const EvaluationReport& any = after.has_value() ? b : a;
    rows.push_back(
        {any.graded_problems < any.problems
             ? absl::StrFormat(
                   "accuracy (%d of %d)", any.graded_problems, any.problems)
             : "accuracy",
         a.accuracy,
         b.accuracy});
  }
  rows.push_back({"format rate", FormatRate(before), FormatRate(after)});
  if (a.truncated.has_value() || b.truncated.has_value()) {
    rows.push_back({"cut off", a.truncated, b.truncated});
  }
  if (a.repeated.has_value() || b.repeated.has_value()) {
    rows.push_back({"repeating", a.repeated, b.repeated});
  }
  const bool is_same = a.marker == b.marker;
  if (a.marker_rate.has_value()) {
    rows.push_back({MarkerLabel(a.marker),
                    a.marker_rate,
                    is_same ? b.marker_rate : std::nullopt});
  }
  if (b.marker_rate.has_value() && !is_same) {
    rows.push_back({MarkerLabel(b.marker), std::nullopt, b.marker_rate});
  }
  constexpr absl::string_view kTitle = "held out";
  size_t width = kTitle.size();
  for (const ShareRow& row : rows) width = std::max(width, row.label.size());
  std::string text =
      absl::StrFormat("  %-*s %-21s   %s\n", width, kTitle, "before", "after");
  for (const ShareRow& row : rows) {
    absl::StrAppendFormat(&text,
                          "  %-*s %-21s   %s\n",
                          width,
                          row.label,
                          ShareText(row.before),
                          ShareText(row.after));
  }
  // evaluation.kl_problems may change within a run, so either report may lack
  // terms. A report that was read from a file has its terms in the order of
  // their names; the newer report may have the objective's order.
  std::vector<std::string> names;
  for (const EvaluationReport* report : {&b, &a}) {
    for (const TermDivergence& term : report->divergences) {
      if (std::ranges::count(names, term.name) == 0) names.push_back(term.name);
    }
  }
  for (const std::string& name : names) {
    absl::StrAppendFormat(&text,
                          "  true KL %-21s %-23s   %s\n",
                          name,
                          DivergenceText(a, name),
                          DivergenceText(b, name));
  }
  for (const bool in_cross : {false, true}) {
    const std::string before_text = ClaimText(a, in_cross);
    const std::string after_text = ClaimText(b, in_cross);
    if (before_text == "-" && after_text == "-") continue;
    absl::StrAppendFormat(&text,
                          "  probability of claims, %-6s %-23s   %s\n",
                          in_cross ? "Cross" : "None",
                          before_text,
                          after_text);
  }
  return text;
}

absl::Status WriteEvaluationReport(const std::string& path,
                                   const EvaluationReport& report) {
  Json json = ToJson(report);
  json["answers"] = ToJson(report.answers);
  if (report.claims.has_value()) {
    json[kKeptClaimAnswers] = ToJson(report.claims->answers);
  }
  return WriteFileAtomically(path, json.dump(2));
}

absl::StatusOr<EvaluationReport> ReadEvaluationReport(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxEvaluationBytes));
  const absl::StatusOr<nlohmann::json> json = ParseJson(text, path);
  if (!json.ok()) return absl::DataLossError(json.status().message());
  return ParseEvaluationReport(Json(*json), path);
}

std::string NameWithinRun(int64_t step) {
  return absl::StrFormat("step-%06d", step);
}

absl::StatusOr<std::vector<NamedEvaluation>> ReadEvaluationReports(
    const std::string& folder) {
  std::vector<NamedEvaluation> evaluations;
  const std::string place = JoinPath(folder, "evaluation");
  if (!FileExists(place)) return evaluations;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(place));
  for (const std::string& name : names) {
    absl::string_view when = name;
    if (!absl::ConsumeSuffix(&when, ".json") ||
        (when != "before" && when != "after" && !IsWithinRun(when))) {
      continue;
    }
    absl::StatusOr<EvaluationReport> report =
        ReadEvaluationReport(JoinPath(place, name));
    if (absl::IsDataLoss(report.status())) {
      LogWarning(absl::StrCat(report.status().message(), "; it is left out"));
      continue;
    }
    RETURN_IF_ERROR(report.status());
    evaluations.emplace_back(std::string(when), *std::move(report));
  }
  std::ranges::sort(evaluations, {}, [](const NamedEvaluation& evaluation) {
    return std::pair(evaluation.second.policy_version, evaluation.first);
  });
  return evaluations;
}

absl::StatusOr<std::vector<NamedEvaluation>> ReadComparableEvaluations(
    const std::string& folder) {
  ASSIGN_OR_RETURN(std::vector<NamedEvaluation> evaluations,
                   ReadEvaluationReports(folder));
  if (evaluations.empty()) return evaluations;
  const std::string digest = evaluations.back().second.held_out_digest;
  std::erase_if(evaluations, [&](const NamedEvaluation& evaluation) {
    return !MeasureTheSame(evaluation.second.held_out_digest, digest);
  });
  return evaluations;
}

}  // namespace dapd
