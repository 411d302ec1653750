// RunRecorder: everything a run leaves behind for its user besides weights.
// What a step measured goes into metrics.jsonl, TensorBoard, Prometheus, the
// status and the charts' history by way of one table,
// common/training/metric_table.h: they hold the same numbers. A few answers of
// each step and evaluation go into files and into RunAnswers, likewise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/load_config.h"
#include "common/config/run_folder.h"
#include "common/data/dataset.h"
#include "common/training/step_report.h"
#include "services/trainer/record/evaluation_report.h"
#include "services/trainer/record/run_displays.h"
#include "services/trainer/record/run_evaluations.h"
#include "services/trainer/step/rollout_record.h"

namespace dapd {

// Thread-safe towards the metrics and status threads; its own calls come from
// the compute thread, but for AdvancePhase, which the thread that collects
// answers may call beside RecordTrainedAhead.
class RunRecorder {
 public:
  // Writes config.yaml into the folder. `start_step`: the step that the run
  // goes on behind, 0 for a new one; what is recorded of later steps is dropped
  // (they are done again). `held_out`: what it is evaluated on; evaluations of
  // other problems do not count (run_evaluations.h).
  static absl::StatusOr<std::unique_ptr<RunRecorder>> Create(
      const LoadedConfig& loaded,
      const RunFolder& folder,
      int64_t start_step,
      const Dataset& held_out,
      const RunDisplays& displays);
  ~RunRecorder();

  const std::string& folder() const;

  void BeginPhase(TrainerPhase phase);
  // So many answers or micro-batches of the phase are done.
  void AdvancePhase(int64_t done, int64_t total);
  // So many micro-batches were trained in the phase "rollout".
  void RecordTrainedAhead(int64_t count);

  // samples/step-000001.jsonl (sample_file.h).
  absl::Status RecordSamples(int64_t step,
                             const std::vector<RolloutRecord>& records);
  // A few of them in answers.jsonl (answer_log.h), on disk before they are
  // shown; nothing for a step that sampled none.
  absl::Status RecordAnswers(int64_t step,
                             const std::vector<RolloutRecord>& records);
  // What the steps up to this one show together (clip_watch.h): sets what of it
  // the report has. Once a step, before it is recorded.
  void CompareSteps(StepReport* report);
  // The step's line in metrics.jsonl, on disk before anything shows the step.
  absl::Status RecordStep(const StepReport& report);
  // Shows the step everywhere else, and warns of what CompareSteps found.
  void ShowStep(const StepReport& report);
  // `when`: "before", "after" or "step-000050"; logged, shown and kept for
  // summary.json, once each. Beside WriteEvaluation, which may fail and be
  // repeated.
  void ShowEvaluation(const std::string& when, const EvaluationReport& report);
  // evaluation/<when>.json.
  absl::Status WriteEvaluation(const std::string& when,
                               const EvaluationReport& report) const;
  // Whether an earlier attempt evaluated, before the first step or within the
  // run, the adapter that the digest is of; the evaluation is then shown, and
  // counts from here on.
  absl::StatusOr<bool> RecallEvaluation(const std::string& when,
                                        const std::string& adapter_digest);
  // Those that count so far.
  const RunEvaluations& evaluations() const;
  // The closing summary on stderr, report.html and summary.json
  // (run_summary.h).
  absl::Status Finish(double total_seconds);
  // report.html of a run that ended so. A report that cannot be written is
  // only told about: the run is worth as much without.
  void WriteReport(const absl::Status& outcome);

 private:
  void KeepEvaluation(const std::string& when, const EvaluationReport& report);
  void AddEvaluationEvents(const EvaluationReport& report);
  void AddEvent(const std::string& tag, int64_t step, double value);

  struct State;
  explicit RunRecorder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dapd
