// This is the only table of a step's metrics. metrics.jsonl, TensorBoard,
// Prometheus, the status, the charts, the sums over ranks and the list in
// docs/watching.md all derive from it. To add a metric, add a field in
// step_report.h, fill it, and add a row in metric_rows.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

#include "common/base/json.h"
#include "common/training/step_report.h"

namespace dapd {

enum class MetricKind { kGauge, kCounter, kHistogram };

// How the values of all ranks are combined into the value of the run.
enum class RankRule {
  kRank0,  // rank 0's value: every rank has the same, only rank 0 knows it, or
           // it follows from combined rows
  kSum,
  kMax,
};

using MetricNumber = std::variant<int64_t, double>;
double AsDouble(MetricNumber number);

struct MetricValue {
  std::string of;  // name of the term or phase; empty: the whole step
  MetricNumber number;
  std::string teacher = {};  // of a row with a value for each teacher of a term
};

struct StepMetric {
  // Path in metrics.jsonl, with levels divided by '/'. "terms/*/value" is one
  // value per term; "terms/*/teachers/*/tokens" is one value per term and
  // teacher; "seconds/*" is one value per phase that is part of a step.
  std::string path;
  std::string tag;         // tag in TensorBoard, with the same '*'
  std::string prometheus;  // one series per term, teacher or phase
  MetricKind kind = MetricKind::kGauge;
  std::string help;
  std::map<std::string, std::string> labels =
      {};  // besides term, teacher, phase
  // The field of v1::GetStatusResponse (for a path with '*': of v1::TermStatus,
  // with a second '*': of v1::TeacherDivergence) that shows the metric; empty:
  // none.
  std::string status = {};
  RankRule rule = RankRule::kRank0;
  std::function<std::vector<MetricValue>(const StepReport&)> read = {};
  // Set only with kSum and kMax.
  std::function<void(StepReport&, double)> write = {};
  bool is_objective = false;  // known without services: `dapd replay` has it
  // For a histogram: the range of its buckets.
  double low = 0.0;
  double high = 0.0;

  // Returns "term" or "phase" if the metric has a value for each; empty: one
  // value.
  std::string label() const;
  // Returns whether the metric has a value for each teacher of a term.
  bool IsByTeacher() const;
  // Returns the tag of a value that the metric has read.
  std::string TagOf(const MetricValue& value) const;
};

const std::vector<StepMetric>& StepMetrics();
// Returns the row of `path`, which must exist.
const StepMetric& StepMetricAt(const std::string& path);

// Returns the step's line in metrics.jsonl: "step" (from 1), "adapter_digest"
// and every row of the table at its path.
nlohmann::ordered_json StepLine(const StepReport& report);
// Returns the part of the line that is known without services, as `dapd replay`
// writes it: {"step", "loss", "gradient_norm", "learning_rate", "terms"}.
nlohmann::ordered_json ObjectiveLine(int64_t step,
                                     const ObjectiveMetrics& objective,
                                     const OptimizerStep& optimizer);
// Returns {"loss", "terms": {name: {"value", "weight", "tokens",
// "clipped_fraction", "unclipped"}}}.
nlohmann::ordered_json ToJson(const ObjectiveMetrics& objective);

// Returns this rank's values for the run, by path: the rows with kSum and kMax.
std::map<std::string, double> MetricsOfRank(const StepReport& report);
// Combines another rank's values with the values of rank 0. Returns DATA_LOSS
// if the ranks measured different metrics.
absl::Status MergeRank(const std::map<std::string, double>& other,
                       StepReport* report);

// Returns the table as Markdown, for docs/watching.md.
std::string MetricReference();

}  // namespace dapd
