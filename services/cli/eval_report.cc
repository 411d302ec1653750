#include "services/cli/eval_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/json.h"
#include "common/data/marker_label.h"
#include "common/data/pass_at_k.h"

namespace dapd {
namespace {

// Sums over the answers to one problem.
struct Sums {
  int64_t correct = 0;
  int64_t boxed = 0;
  int64_t marked = 0;
  int64_t truncated = 0;
  int64_t repeated = 0;
  int64_t tokens = 0;
};

std::string Percent(const Interval& interval) {
  return absl::StrFormat("%6.2f %% [%.2f, %.2f]",
                         100 * interval.mean,
                         100 * interval.low,
                         100 * interval.high);
}

}  // namespace

EvalReport SummarizeAnswers(const std::vector<std::string>& ids,
                            int64_t samples,
                            const std::vector<AnswerRecord>& records,
                            const std::string& marker,
                            uint64_t seed) {
  std::vector<Sums> sums(ids.size());
  for (const AnswerRecord& record : records) {
    Sums& sum = sums[static_cast<size_t>(record.index)];
    sum.correct += record.grade.correct ? 1 : 0;
    sum.boxed += record.grade.has_box ? 1 : 0;
    sum.marked += record.is_marked ? 1 : 0;
    sum.truncated += record.finish_reason == FinishReason::kLength ? 1 : 0;
    sum.repeated += record.repeated ? 1 : 0;
    sum.tokens += record.tokens;
  }
  const auto share_of = [&](int64_t Sums::*member) {
    std::vector<int64_t> counts;
    for (const Sums& sum : sums) counts.push_back(sum.*member);
    return BootstrapShares(counts, samples, seed);
  };
  EvalReport report;
  report.samples = samples;
  report.accuracy = share_of(&Sums::correct);
  report.format_rate = share_of(&Sums::boxed);
  if (!marker.empty()) {
    report.marker = marker;
    report.marker_rate = share_of(&Sums::marked);
  }
  report.truncated = share_of(&Sums::truncated);
  report.repeated = share_of(&Sums::repeated);
  std::vector<double> lengths;
  for (const Sums& sum : sums) {
    lengths.push_back(static_cast<double>(sum.tokens) /
                      static_cast<double>(samples));
  }
  report.tokens = BootstrapMean(lengths, seed);
  for (int64_t k = 1; k <= samples; ++k) {
    std::vector<double> passed;
    for (const Sums& sum : sums) {
      passed.push_back(PassAtK(samples, sum.correct, k));
    }
    report.pass_at.push_back(BootstrapInterval(passed, seed));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    report.problems.push_back({ids[i], sums[i].correct});
  }
  return report;
}

nlohmann::ordered_json ToJson(const EvalReport& report) {
  nlohmann::ordered_json pass_at = nlohmann::ordered_json::object();
  for (size_t k = 1; k <= report.pass_at.size(); ++k) {
    pass_at[absl::StrCat(k)] = ToJson(report.pass_at[k - 1]);
  }
  nlohmann::ordered_json by_problem = nlohmann::ordered_json::array();
  for (const EvalReport::OfProblem& problem : report.problems) {
    by_problem.push_back({{"id", problem.id}, {"correct", problem.correct}});
  }
  nlohmann::ordered_json json = {{"problems", report.problems.size()},
                                 {"samples", report.samples},
                                 {"accuracy", ToJson(report.accuracy)},
                                 {"format_rate", ToJson(report.format_rate)}};
  if (report.marker_rate.has_value()) {
    json["marker"] = report.marker;
    json["marker_rate"] = ToJson(*report.marker_rate);
  }
  json["mean_tokens"] = report.tokens.mean;
  json["tokens"] = ToJson(report.tokens);
  json["truncated"] = ToJson(report.truncated);
  json["repeated"] = ToJson(report.repeated);
  json["pass_at"] = pass_at;
  json["by_problem"] = by_problem;
  return json;
}

std::string ToText(const EvalReport& report) {
  std::string text = absl::StrFormat(
      "%d problems x %d answers; 95 %% intervals over problems (bootstrap; "
      "of shares Wilson where all agree)\n"
      "Avg@%-3d accuracy %s\n",
      report.problems.size(),
      report.samples,
      report.samples,
      Percent(report.accuracy));
  for (size_t k = 2; k <= report.pass_at.size(); ++k) {
    absl::StrAppendFormat(
        &text, "pass@%-11d %s\n", k, Percent(report.pass_at[k - 1]));
  }
  absl::StrAppendFormat(
      &text, "format rate      %s\n", Percent(report.format_rate));
  if (report.marker_rate.has_value()) {
    absl::StrAppendFormat(&text,
                          "%-16s %s\n",
                          MarkerLabel(report.marker),
                          Percent(*report.marker_rate));
  }
  absl::StrAppendFormat(&text,
                        "truncated        %s\n"
                        "repeated         %s\n"
                        "mean tokens      %6.1f [%.1f, %.1f]",
                        Percent(report.truncated),
                        Percent(report.repeated),
                        report.tokens.mean,
                        report.tokens.low,
                        report.tokens.high);
  return text;
}

}  // namespace dapd
