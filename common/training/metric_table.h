// The one table of a step's metrics. metrics.jsonl, TensorBoard, Prometheus,
// the status, the charts, the sums over ranks and the list in docs/watching.md
// all derive from it: to add a metric, add a field in step_report.h, fill it,
// and add a row in metric_rows.cc.
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

// How the values of all ranks become the run's.
enum class RankRule {
  kRank0,  // rank 0's: it speaks for all, or for itself, or follows from rows
           // that were put together
  kSum,
  kMax,
};

using MetricNumber = std::variant<int64_t, double>;
double AsDouble(MetricNumber number);

struct MetricValue {
  std::string of;  // the term or phase that it is of; empty: of the step
  MetricNumber number;
};

struct StepMetric {
  // In metrics.jsonl, levels divided by '/'. "terms/*/value": one per term;
  // "seconds/*": one per phase that is part of a step.
  std::string path;
  std::string tag;         // of TensorBoard, with the same '*'
  std::string prometheus;  // one series per term or phase
  MetricKind kind = MetricKind::kGauge;
  std::string help;
  std::map<std::string, std::string> labels = {};  // besides term and phase
  // The field of v1::GetStatusResponse, or with '*' of v1::TermStatus, that
  // shows it; empty: none.
  std::string status = {};
  RankRule rule = RankRule::kRank0;
  std::function<std::vector<MetricValue>(const StepReport&)> read = {};
  // Only with kSum and kMax.
  std::function<void(StepReport&, double)> write = {};
  bool is_objective = false;  // known without services: `dapd replay` has it
  // Of a histogram: the range of its buckets.
  double low = 0.0;
  double high = 0.0;

  // "term" or "phase", by which there is one value each; empty: one value.
  std::string label() const;
  // The tag of the value of that term or phase.
  std::string TagOf(const std::string& of) const;
};

const std::vector<StepMetric>& StepMetrics();
// The row of that path, which must be there.
const StepMetric& StepMetricAt(const std::string& path);

// The step's line in metrics.jsonl: "step" (from 1), "adapter_digest" and every
// row of the table at its path.
nlohmann::ordered_json StepLine(const StepReport& report);
// What of it is known without services, as `dapd replay` writes it: {"step",
// "loss", "gradient_norm", "learning_rate", "terms"}.
nlohmann::ordered_json ObjectiveLine(int64_t step,
                                     const ObjectiveMetrics& objective,
                                     const OptimizerStep& optimizer);
// {"loss", "terms": {name: {"value", "weight", "tokens", "clipped_fraction",
// "unclipped"}}}
nlohmann::ordered_json ToJson(const ObjectiveMetrics& objective);

// What a rank measured for the run, by path: the rows with kSum and kMax.
std::map<std::string, double> MetricsOfRank(const StepReport& report);
// Puts another rank's into rank 0's. DATA_LOSS if it measured something else.
absl::Status MergeRank(const std::map<std::string, double>& other,
                       StepReport* report);

// The table as Markdown, for docs/watching.md.
std::string MetricReference();

}  // namespace dapd
