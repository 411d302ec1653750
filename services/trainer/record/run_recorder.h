// RunRecorder writes everything except weights that a run leaves for its user.
// A step's measurements go through one table, common/training/metric_table.h,
// into metrics.jsonl, TensorBoard, Prometheus, the status and the charts'
// history, which therefore hold the same numbers. A few answers of each step
// and evaluation go into files and into RunAnswers.
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

// May be used beside the metrics and status threads. All calls come from the
// compute thread, except that the thread that collects answers may call
// AdvancePhase beside RecordTrainedAhead.
class RunRecorder {
 public:
  // Writes config.yaml into the folder. `start_step`: the last step before this
  // attempt, 0 for a new run; records of later steps, which are done again, are
  // dropped. `held_out`: the problems of its evaluations; evaluations of other
  // problems do not count (run_evaluations.h).
  static absl::StatusOr<std::unique_ptr<RunRecorder>> Create(
      const LoadedConfig& loaded,
      const RunFolder& folder,
      int64_t start_step,
      const Dataset& held_out,
      const RunDisplays& displays);
  ~RunRecorder();

  const std::string& folder() const;

  void BeginPhase(TrainerPhase phase);
  // Shows that so many answers or micro-batches of the phase are done.
  void AdvancePhase(int64_t done, int64_t total);
  // Shows that so many micro-batches were trained in the phase "rollout".
  void RecordTrainedAhead(int64_t count);

  // Writes samples/step-000001.jsonl: a row for each sample, as
  // common/data/sample_rows.h reads it, with text, grade and finish reason.
  absl::Status RecordSamples(int64_t step,
                             const std::vector<RolloutRecord>& records);
  // Appends a few of the records to answers.jsonl (answer_log.h), on disk
  // before they are shown; nothing for a step without answers.
  absl::Status RecordAnswers(int64_t step,
                             const std::vector<RolloutRecord>& records);
  // Adds to the report the findings over the steps so far (clip_watch.h).
  // Called once for each step, before it is recorded.
  void CompareSteps(StepReport* report);
  // Appends the step's line to metrics.jsonl, on disk before anything shows the
  // step.
  absl::Status RecordStep(const StepReport& report);
  // Shows the step everywhere else, and logs the warnings of CompareSteps.
  void ShowStep(const StepReport& report);
  // Logs and shows an evaluation and keeps it for summary.json, once per
  // evaluation. `when`: "before", "after" or "step-000050". WriteEvaluation is
  // separate, because it may fail and be repeated.
  void ShowEvaluation(const std::string& when, const EvaluationReport& report);
  // Writes evaluation/<when>.json.
  absl::Status WriteEvaluation(const std::string& when,
                               const EvaluationReport& report) const;
  // Returns whether an earlier attempt evaluated this adapter, before the first
  // step or within the run. If so, the evaluation is shown and counts from here
  // on.
  absl::StatusOr<bool> RecallEvaluation(const std::string& when,
                                        const std::string& adapter_digest);
  // Returns the evaluations that count so far.
  const RunEvaluations& evaluations() const;
  // Writes the closing summary to stderr, report.html and summary.json
  // (run_summary.h).
  absl::Status Finish(double total_seconds);
  // Writes report.html of a run that ended with `outcome`. A failure is only
  // logged.
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
