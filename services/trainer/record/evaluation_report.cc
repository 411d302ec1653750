#include "services/trainer/record/evaluation_report.h"

#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

Interval ParseInterval(const Json& json) {
  return {
      .mean = json.at("mean"), .low = json.at("low"), .high = json.at("high")};
}

}  // namespace

Json ToJson(const EvaluationReport& report) {
  Json divergences = Json::object();
  for (const TermDivergence& term : report.divergences) {
    divergences[term.name] = ToJson(term.unclipped);
  }
  return {{"policy_version", report.policy_version},
          {"problems", report.problems},
          {"samples", report.samples},
          {"accuracy", ToJson(report.accuracy)},
          {"format_rate", ToJson(report.format_rate)},
          {"mean_tokens", report.mean_tokens},
          {"unclipped_divergence", divergences},
          {"seconds", report.seconds}};
}

absl::StatusOr<EvaluationReport> ParseEvaluationReport(
    const Json& json, const std::string& where) try {
  EvaluationReport report;
  report.policy_version = json.at("policy_version");
  report.problems = json.at("problems");
  report.samples = json.at("samples");
  report.accuracy = ParseInterval(json.at("accuracy"));
  report.format_rate = ParseInterval(json.at("format_rate"));
  report.mean_tokens = json.at("mean_tokens");
  for (const auto& [name, interval] : json.at("unclipped_divergence").items()) {
    report.divergences.push_back({name, ParseInterval(interval)});
  }
  report.seconds = json.at("seconds");
  return report;
} catch (const Json::exception& error) {
  return absl::DataLossError(
      absl::StrCat(where, " holds no evaluation: ", error.what()));
}

}  // namespace dapd
