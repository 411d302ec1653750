#include "services/trainer/record/evaluation_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 24;

Interval ParseInterval(const Json& json) {
  return {
      .mean = json.at("mean"), .low = json.at("low"), .high = json.at("high")};
}

absl::StatusOr<EvaluationReport> ParseEvaluationReport(
    const Json& json, const std::string& where) try {
  EvaluationReport report;
  report.policy_version = json.at("policy_version");
  report.adapter_digest = json.value("adapter_digest", "");
  report.problems = json.at("problems");
  report.samples = json.at("samples");
  report.accuracy = ParseInterval(json.at("accuracy"));
  report.format_rate = ParseInterval(json.at("format_rate"));
  report.mean_tokens = json.at("mean_tokens");
  for (const auto& [name, interval] : json.at("unclipped_divergence").items()) {
    report.divergences.push_back({name, ParseInterval(interval)});
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

}  // namespace

Json ToJson(const EvaluationReport& report) {
  Json divergences = Json::object();
  for (const TermDivergence& term : report.divergences) {
    divergences[term.name] = ToJson(term.unclipped);
  }
  return {{"policy_version", report.policy_version},
          {"adapter_digest", report.adapter_digest},
          {"problems", report.problems},
          {"samples", report.samples},
          {"accuracy", ToJson(report.accuracy)},
          {"format_rate", ToJson(report.format_rate)},
          {"mean_tokens", report.mean_tokens},
          {"unclipped_divergence", divergences},
          {"seconds", report.seconds}};
}

std::string PercentText(const Interval& interval) {
  return absl::StrFormat("%5.1f %% [%.1f, %.1f]",
                         100 * interval.mean,
                         100 * interval.low,
                         100 * interval.high);
}

std::string CompareEvaluations(const EvaluationReport& before,
                               const EvaluationReport& after) {
  std::string text = absl::StrFormat(
      "  held out              before                    after\n"
      "  accuracy    %s   %s\n"
      "  format rate %s   %s\n",
      PercentText(before.accuracy),
      PercentText(after.accuracy),
      PercentText(before.format_rate),
      PercentText(after.format_rate));
  for (size_t k = 0; k < before.divergences.size(); ++k) {
    const TermDivergence& a = before.divergences[k];
    const TermDivergence& b = after.divergences[k];
    absl::StrAppendFormat(
        &text,
        "  true KL %-21s %.4f [%.4f, %.4f]   %.4f [%.4f, %.4f]\n",
        a.name,
        a.unclipped.mean,
        a.unclipped.low,
        a.unclipped.high,
        b.unclipped.mean,
        b.unclipped.low,
        b.unclipped.high);
  }
  return text;
}

absl::Status WriteEvaluationReport(const std::string& path,
                                   const EvaluationReport& report) {
  Json json = ToJson(report);
  json["answers"] = ToJson(report.answers);
  return WriteFileAtomically(path, json.dump(2));
}

absl::StatusOr<EvaluationReport> ReadEvaluationReport(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, path));
  return ParseEvaluationReport(Json(json), path);
}

}  // namespace dapd
