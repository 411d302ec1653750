// RunRecorder: everything a run leaves behind for its user besides weights.
// One call here feeds metrics.jsonl, TensorBoard, Prometheus, the status RPC
// and the progress line, so that they cannot disagree.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/load_config.h"
#include "common/training/step_metrics.h"
#include "services/trainer/evaluation.h"
#include "services/trainer/sample_pipeline.h"

namespace dapd {

class TrainerMetrics;
class TrainerStatus;

// One optimizer step.
struct StepReport {
  int64_t step = 0;  // from 1
  ObjectiveMetrics objective;
  OptimizerStep optimizer;
  std::string adapter_digest;  // after the step
  int64_t snapshot_version = 0;
  // Wall seconds by phase: rollout, score, train, optimizer, publish.
  std::map<std::string, double> seconds;
  int64_t samples = 0;  // trained
  int64_t untrainable_samples = 0;
  int64_t generated_tokens = 0;
  int64_t scored_tokens = 0;   // by the teachers
  uint64_t payload_bytes = 0;  // from the teachers
  double mean_rollout_tokens = 0.0;
  double truncated_fraction = 0.0;  // answers that hit max_new_tokens
  double boxed_fraction = 0.0;
  double correct_fraction = 0.0;  // of problems with an answer
};

// Thread-safe towards the metrics and status threads; its own calls come from
// the compute thread.
class RunRecorder {
 public:
  // Creates `<run.output_dir>/<run.name>` with config.yaml. FAILED_PRECONDITION
  // if the folder already holds a run. `metrics` and `status` may be null and
  // must outlive the recorder.
  static absl::StatusOr<std::unique_ptr<RunRecorder>> Create(
      const LoadedConfig& loaded,
      TrainerMetrics* metrics,
      TrainerStatus* status);
  ~RunRecorder();

  const std::string& folder() const;

  // "starting", "evaluating", "rollout", "scoring", "training", "publishing",
  // "saving", "done".
  void BeginPhase(const std::string& phase);

  // samples/step-000001.jsonl: {"id", "problem", "reference", "rollout_ids",
  // "rollout", "finish_reason", "correct"}: replayable.
  absl::Status RecordSamples(int64_t step,
                             const std::vector<RolloutRecord>& records);
  absl::Status RecordStep(const StepReport& report);
  // `when`: "before" or "after"; kept for report.json and printed.
  absl::Status RecordEvaluation(const std::string& when,
                                const EvaluationReport& report);
  // The closing summary on stderr, and summary.json.
  absl::Status Finish(double total_seconds);

 private:
  struct State;
  explicit RunRecorder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dapd
