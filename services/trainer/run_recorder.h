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
#include "services/trainer/evaluation.h"
#include "services/trainer/sample_pipeline.h"
#include "services/trainer/step_report.h"
#include "services/trainer/trainer_metrics.h"
#include "services/trainer/trainer_status.h"

namespace dapd {

// Thread-safe towards the metrics and status threads; its own calls come from
// the compute thread.
class RunRecorder {
 public:
  // Creates `<run.output_dir>/<run.name>` with config.yaml. FAILED_PRECONDITION
  // if the folder already holds a run. `metrics` and `status` must outlive the
  // recorder.
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
  // `when`: "before" or "after"; kept for summary.json and logged.
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
