#include "common/training/metric_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "common/base/check.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// Returns the text of each '*' in the path or tag of a metric, in order.
std::array<std::string, 2> TextsOfStars(const MetricValue& value) {
  return {value.of, value.teacher};
}

void AddTo(Json& line, const StepMetric& metric, const StepReport& report) {
  const std::vector<std::string> levels = absl::StrSplit(metric.path, '/');
  for (const MetricValue& value : metric.read(report)) {
    Json* place = &line;
    const auto texts = TextsOfStars(value);
    size_t star = 0;
    for (const std::string& level : levels) {
      place = &(*place)[level == "*" ? texts.at(star++) : level];
    }
    std::visit([&](auto number) { *place = number; }, value.number);
  }
}

const char* NameOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "";
}

const char* NameOf(RankRule rule) {
  switch (rule) {
    case RankRule::kRank0:
      return "rank 0";
    case RankRule::kSum:
      return "sum";
    case RankRule::kMax:
      return "maximum";
  }
  return "";
}

std::string SeriesOf(const StepMetric& metric) {
  std::vector<std::string> labels;
  if (!metric.label().empty()) labels.push_back(metric.label());
  if (metric.IsByTeacher()) labels.emplace_back("teacher");
  for (const auto& [name, value] : metric.labels) {
    labels.push_back(absl::StrCat(name, "=\"", value, "\""));
  }
  return labels.empty()
             ? metric.prometheus
             : absl::StrCat(
                   metric.prometheus, "{", absl::StrJoin(labels, ", "), "}");
}

}  // namespace

double AsDouble(MetricNumber number) {
  return std::visit([](auto value) { return static_cast<double>(value); },
                    number);
}

std::string StepMetric::label() const {
  if (!absl::StrContains(path, "*")) return "";
  return absl::StartsWith(path, "terms/") ? "term" : "phase";
}

bool StepMetric::IsByTeacher() const {
  return std::ranges::count(path, '*') > 1;
}

std::string StepMetric::TagOf(const MetricValue& value) const {
  std::vector<std::string> parts = absl::StrSplit(tag, '*');
  const auto texts = TextsOfStars(value);
  std::string text = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) text += texts.at(i - 1) + parts[i];
  return text;
}

const StepMetric& StepMetricAt(const std::string& path) {
  const auto found = std::ranges::find(StepMetrics(), path, &StepMetric::path);
  Check(found != StepMetrics().end(), path.c_str());
  return *found;
}

Json StepLine(const StepReport& report) {
  Json line = {{"step", report.step},
               {"adapter_digest", report.adapter_digest}};
  for (const StepMetric& metric : StepMetrics()) AddTo(line, metric, report);
  return line;
}

Json ObjectiveLine(int64_t step,
                   const ObjectiveMetrics& objective,
                   const OptimizerStep& optimizer) {
  StepReport report;
  report.objective = objective;
  report.optimizer = optimizer;
  Json line = {{"step", step}};
  for (const StepMetric& metric : StepMetrics()) {
    if (metric.is_objective) AddTo(line, metric, report);
  }
  return line;
}

Json ToJson(const ObjectiveMetrics& objective) {
  const Json line = ObjectiveLine(0, objective, {});
  return {{"loss", line["loss"]}, {"terms", line["terms"]}};
}

std::map<std::string, double> MetricsOfRank(const StepReport& report) {
  std::map<std::string, double> metrics;
  for (const StepMetric& metric : StepMetrics()) {
    if (metric.rule == RankRule::kRank0) continue;
    metrics[metric.path] = AsDouble(metric.read(report).front().number);
  }
  return metrics;
}

absl::Status MergeRank(const std::map<std::string, double>& other,
                       StepReport* report) {
  const std::map<std::string, double> own = MetricsOfRank(*report);
  if (!std::ranges::equal(
          own,
          other,
          {},
          [](const auto& entry) { return entry.first; },
          [](const auto& entry) { return entry.first; })) {
    return absl::DataLossError(
        "another rank measured different things from rank 0; is its version "
        "the same?");
  }
  for (const StepMetric& metric : StepMetrics()) {
    if (metric.rule == RankRule::kRank0) continue;
    const double mine = own.at(metric.path);
    const double its = other.at(metric.path);
    metric.write(
        *report,
        metric.rule == RankRule::kSum ? mine + its : std::max(mine, its));
  }
  return absl::OkStatus();
}

std::string MetricReference() {
  std::string text =
      "| `metrics.jsonl` | TensorBoard | Prometheus | kind | over ranks | "
      "meaning |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const StepMetric& metric : StepMetrics()) {
    absl::StrAppend(&text,
                    "| `",
                    metric.path,
                    "` | `",
                    metric.tag,
                    "` | `",
                    SeriesOf(metric),
                    "` | ",
                    NameOf(metric.kind),
                    " | ",
                    NameOf(metric.rule),
                    " | ",
                    metric.help,
                    " |\n");
  }
  return text;
}

}  // namespace dapd
