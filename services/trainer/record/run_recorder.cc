#include "services/trainer/record/run_recorder.h"

#include <atomic>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/append_file.h"
#include "common/base/aside.h"
#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/charts/run_history.h"
#include "common/config/config_text.h"
#include "common/config/preset_terms.h"
#include "common/data/marker_label.h"
#include "common/metrics/tensorboard_writer.h"
#include "common/training/clip_watch.h"
#include "common/training/metric_table.h"
#include "services/trainer/evaluation.h"
#include "services/trainer/record/answer_log.h"
#include "services/trainer/record/choose_answers.h"
#include "services/trainer/record/claim_rise.h"
#include "services/trainer/record/loss_text.h"
#include "services/trainer/record/run_answers.h"
#include "services/trainer/record/run_summary.h"
#include "services/trainer/record/step_lines.h"
#include "services/trainer/status/page/run_report.h"
#include "services/trainer/status/status_message.h"
#include "services/trainer/status/trainer_metrics.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// Returns a row of samples/step-000001.jsonl: the keys that
// common/data/sample_rows.h reads, and some for people.
Json SampleRowOf(const RolloutRecord& record) {
  const bool is_given = record.reference_ids.empty();
  Json row = {
      {"id", record.problem->id},
      {"problem", record.problem->problem},
      {"reference", is_given ? record.problem->solution : record.reference},
      {"rollout_ids", record.answer.ids},
      {"rollout", record.text},
      {"finish_reason", NameOf(record.answer.finish_reason)},
      {"has_box", record.grade.has_box},
      {"correct", record.grade.correct}};
  if (record.given_grade.has_value()) {
    const GraderResult& grade = *record.given_grade;
    if (grade.ungraded.has_value()) {
      row["ungraded"] = NameOf(*grade.ungraded);
    } else {
      row["score"] = grade.score;
    }
  }
  if (!record.answer.logprobs.empty()) {
    row["sampler_logprobs"] = record.answer.logprobs;
  }
  if (!is_given) {
    row["reference_ids"] = record.reference_ids;
    row["reference_approved"] = record.is_approved;
  }
  if (record.problem->material != nullptr) {
    // Readers of JSON need not keep the order of keys in tools and calls, which
    // the prompts have.
    row["material"] = MaterialJson(*record.problem->material).dump();
  }
  if (record.is_left_out) row["left_out"] = true;
  if (!record.problem->teacher.empty()) {
    row["teacher"] = record.problem->teacher;
  }
  if (record.context.sibling.has_value()) {
    row["sibling"] = *record.context.sibling;
  }
  if (!record.context.feedback.empty()) {
    row["feedback"] = record.context.feedback;
  }
  return row;
}

absl::Status WriteSamples(const std::string& path,
                          const std::vector<RolloutRecord>& records) {
  ASSIGN_OR_RETURN(JsonLinesWriter writer, JsonLinesWriter::Open(path));
  for (const RolloutRecord& record : records) {
    RETURN_IF_ERROR(writer.Append(SampleRowOf(record)));
  }
  return writer.Commit();
}

// The lines that earlier attempts left in metrics.jsonl.
struct KeptLines {
  std::map<std::string, double> seconds;  // by phase
  nlohmann::ordered_json last;            // null: none
};

absl::Status KeepDamaged(const std::string& path) {
  const std::string aside = absl::StrCat(path, kDamagedMark);
  std::error_code error;
  std::filesystem::copy_file(
      path, aside, std::filesystem::copy_options::overwrite_existing, error);
  if (error) {
    return FileError(absl::StrCat("copy ", path, " to"), aside, error.value());
  }
  LogWarning(absl::StrCat("a copy of ", path, " is kept as ", aside));
  return absl::OkStatus();
}

// Adds the seconds of a step's line, by phase.
void AddSeconds(const Json& line, std::map<std::string, double>* sums) {
  for (const auto& [phase, seconds] : line.at("seconds").items()) {
    (*sums)[phase] += seconds.get<double>();
  }
}

// Drops from metrics.jsonl the lines behind `last_step`, whose steps are done
// again, a line that a crash cut off, and damaged lines: if there are any, a
// copy of the file is kept as metrics.jsonl.damaged. The lines that stay begin
// `history` and `watch`.
absl::StatusOr<KeptLines> KeepLines(const std::string& path,
                                    int64_t last_step,
                                    RunHistory* history,
                                    ClipWatch* watch) {
  KeptLines kept;
  if (!FileExists(path)) return kept;
  ASSIGN_OR_RETURN(JsonLinesWriter writer, JsonLinesWriter::Open(path));
  ASSIGN_OR_RETURN(
      const int64_t num_damaged,
      ForEachStepLine(path,
                      [&](int64_t step, const Json& line) -> absl::Status {
                        if (step > last_step) return absl::OkStatus();
                        history->Add(line);
                        watch->Recall(line);
                        AddSeconds(line, &kept.seconds);
                        kept.last = line;
                        return writer.Append(line);
                      }));
  if (num_damaged > 0) RETURN_IF_ERROR(KeepDamaged(path));
  RETURN_IF_ERROR(writer.Commit());
  return kept;
}

}  // namespace

struct RunRecorder::State {
  LoadedConfig loaded;
  std::string folder;
  RunDisplays displays;
  AppendFile lines;
  AnswerLog answer_log;
  TensorBoardWriter events;
  Progress progress;  // of the steps
  ClipWatch clip_watch;
  std::vector<ClipFinding> clip_news;  // of the last step, not yet shown
  std::unique_ptr<Progress> evaluation_progress;
  std::string step_note;  // of the last step, for the progress line
  RunEvaluations evaluations;
  std::map<std::string, double> seconds;  // by phase, over all steps
  int64_t start_step = 0;
  int64_t steps = 0;
  bool events_failed = false;
  std::atomic<TrainerPhase> phase = TrainerPhase::kStarting;
};

RunRecorder::RunRecorder(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

RunRecorder::~RunRecorder() = default;

absl::StatusOr<std::unique_ptr<RunRecorder>> RunRecorder::Create(
    const LoadedConfig& loaded,
    const RunFolder& folder,
    int64_t start_step,
    const Dataset& held_out,
    const RunDisplays& displays) {
  const Config& config = loaded.config;
  RETURN_IF_ERROR(
      WriteFileAtomically(folder.File("config.yaml"), DumpConfig(loaded)));
  DAPD_FAILPOINT("run.after_config");
  const std::string lines_path = folder.File("metrics.jsonl");
  ClipWatch watch(ExpandTerms(config.objective));
  ASSIGN_OR_RETURN(const KeptLines kept,
                   KeepLines(lines_path, start_step, displays.history, &watch));
  ASSIGN_OR_RETURN(AppendFile lines, AppendFile::Open(lines_path));
  ASSIGN_OR_RETURN(AnswerLog answer_log,
                   AnswerLog::Open(folder.File("answers.jsonl"), start_step));
  displays.answers->ShowStep(answer_log.last());
  ASSIGN_OR_RETURN(TensorBoardWriter events,
                   TensorBoardWriter::Create(folder.path()));
  RETURN_IF_ERROR(events.AddStart(start_step + 1));
  if (folder.resumed()) {
    // TensorBoard counts every start but the first as a restart. An earlier
    // version, which may have begun the run, wrote no starts.
    RETURN_IF_ERROR(events.AddStart(start_step + 1));
  }
  displays.status->Change([&](v1::GetStatusResponse& state) {
    state.set_run_name(config.run.name);
    state.set_run_folder(folder.path());
    state.set_step(start_step);
    state.set_start_step(start_step);
    state.set_total_steps(config.trainer.steps);
    state.set_max_gradient_norm(config.trainer.max_grad_norm);
    state.set_max_rollout_tokens(config.rollout.max_new_tokens);
  });
  if (!kept.last.is_null()) {
    try {
      displays.status->Change([&](v1::GetStatusResponse& state) {
        ShowStepLine(kept.last, &state);
        ShowClipFindings(watch.Findings(), &state);
      });
    } catch (const Json::exception& error) {
      LogWarning(absl::StrCat(
          lines_path, " ends in a step that cannot be shown: ", error.what()));
    }
  }
  displays.metrics->RecordStart(start_step, folder.resumed());
  std::unique_ptr<RunRecorder> recorder(new RunRecorder(std::unique_ptr<State>(
      new State{.loaded = loaded,
                .folder = folder.path(),
                .displays = displays,
                .lines = std::move(lines),
                .answer_log = std::move(answer_log),
                .events = std::move(events),
                .progress = Progress("steps", config.trainer.steps, start_step),
                .clip_watch = std::move(watch),
                .evaluations = RunEvaluations(folder.path(),
                                              HeldOutDigest(config, held_out)),
                .seconds = kept.seconds,
                .start_step = start_step,
                .steps = start_step})));
  ASSIGN_OR_RETURN(const std::vector<NamedEvaluation> evaluations,
                   recorder->state_->evaluations.Recall(config, start_step));
  for (const auto& [when, report] : evaluations) {
    recorder->KeepEvaluation(when, report);
  }
  return recorder;
}

void RunRecorder::KeepEvaluation(const std::string& when,
                                 const EvaluationReport& report) {
  state_->evaluations.Add(when, report);
  state_->displays.metrics->RecordEvaluation(when, report);
  state_->displays.status->Change([&](v1::GetStatusResponse& state) {
    dapd::ShowEvaluation(when, report, &state);
    ShowClaimRise(FindClaimRise(state_->evaluations.all()), &state);
  });
  state_->displays.answers->ShowEvaluation(report);
}

absl::StatusOr<bool> RunRecorder::RecallEvaluation(
    const std::string& when, const std::string& adapter_digest) {
  ASSIGN_OR_RETURN(const auto report,
                   state_->evaluations.Find(when, adapter_digest));
  if (!report.has_value()) return false;
  KeepEvaluation(when, *report);
  // TensorBoard drops the events of earlier attempts behind the step of this
  // attempt's start.
  if (report->policy_version > state_->start_step) {
    AddEvaluationEvents(*report);
  }
  return true;
}

const RunEvaluations& RunRecorder::evaluations() const {
  return state_->evaluations;
}

const std::string& RunRecorder::folder() const { return state_->folder; }

void RunRecorder::BeginPhase(TrainerPhase phase) {
  state_->phase = phase;
  state_->displays.status->Change([&](v1::GetStatusResponse& s) {
    s.set_phase(NameOf(phase));
    s.clear_phase_done();
    s.clear_phase_total();
    s.clear_trained_ahead();
  });
  state_->displays.metrics->BeginPhase(phase);
  // The time of the evaluation before the first step counts for no step.
  if (phase == TrainerPhase::kRollout &&
      state_->progress.SecondsPerUnit() == 0.0) {
    state_->progress.Begin();
  }
}

void RunRecorder::AdvancePhase(int64_t done, int64_t total) {
  const TrainerPhase phase = state_->phase;
  std::string ahead;
  state_->displays.status->Change([&](v1::GetStatusResponse& s) {
    if (s.trained_ahead() > 0) {
      ahead = absl::StrFormat(", %d micro-batches trained", s.trained_ahead());
    }
    s.set_phase_done(done);
    s.set_phase_total(total);
  });
  if (phase != TrainerPhase::kEvaluating) {
    state_->progress.Update(
        state_->steps,
        absl::StrFormat("%s %d/%d%s%s%s",
                        NameOf(phase),
                        done,
                        total,
                        ahead,
                        state_->step_note.empty() ? "" : "  ",
                        state_->step_note));
    return;
  }
  if (state_->evaluation_progress == nullptr) {
    state_->evaluation_progress =
        std::make_unique<Progress>("held-out answers", total);
  }
  state_->evaluation_progress->Update(done);
  if (done == total) state_->evaluation_progress.reset();
}

void RunRecorder::RecordTrainedAhead(int64_t count) {
  state_->displays.status->Change(
      [&](v1::GetStatusResponse& s) { s.set_trained_ahead(count); });
}

absl::Status RunRecorder::RecordSamples(
    int64_t step, const std::vector<RolloutRecord>& records) {
  return WriteSamples(
      JoinPath(state_->folder,
               absl::StrFormat("samples/step-%06d.jsonl", step)),
      records);
}

absl::Status RunRecorder::RecordAnswers(
    int64_t step, const std::vector<RolloutRecord>& records) {
  StepAnswers answers{.step = step, .answers = ChooseStepAnswers(records)};
  if (answers.answers.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(state_->answer_log.Append(answers));
  state_->displays.answers->ShowStep(std::move(answers));
  return absl::OkStatus();
}

absl::Status RunRecorder::RecordStep(const StepReport& report) {
  return state_->lines.Append(StepLine(report).dump() + "\n");
}

void RunRecorder::CompareSteps(StepReport* report) {
  state_->clip_news = state_->clip_watch.Add(report);
}

void RunRecorder::ShowStep(const StepReport& report) {
  for (const StepMetric& metric : StepMetrics()) {
    for (const MetricValue& value : metric.read(report)) {
      AddEvent(metric.TagOf(value), report.step, AsDouble(value.number));
    }
  }
  state_->displays.metrics->RecordStep(report);
  ++state_->steps;
  state_->step_note = absl::StrFormat("loss %s  grad %.3f  rollout %.0f tokens",
                                      LossText(report.objective.loss),
                                      report.optimizer.gradient_norm,
                                      report.mean_rollout_tokens);
  state_->progress.Update(report.step, state_->step_note);
  const Json line = StepLine(report);
  AddSeconds(line, &state_->seconds);
  state_->displays.history->Add(line);
  state_->displays.status->Change([&](v1::GetStatusResponse& state) {
    ShowStepLine(line, &state);
    ShowClipFindings(state_->clip_watch.Findings(), &state);
    state.set_seconds_per_step(state_->progress.SecondsPerUnit());
    state.set_eta_seconds(state_->progress.EtaSeconds());
  });
  for (const ClipFinding& finding : state_->clip_news) {
    LogWarning(Describe(finding));
  }
}

void RunRecorder::ShowEvaluation(const std::string& when,
                                 const EvaluationReport& report) {
  LogInfo(absl::StrFormat(
      "evaluation %s: %s, format rate %s%s%s (95 %% interval; "
      "%d problems x %d), %.0f tokens per answer, %.0f s",
      IsWithinRun(when) ? absl::StrCat("after step ", report.policy_version)
                        : absl::StrCat(when, " training"),
      AccuracyText(report),
      PercentText(report.format_rate),
      report.marker_rate.has_value()
          ? absl::StrCat(", ",
                         MarkerLabel(report.marker),
                         " ",
                         PercentText(*report.marker_rate))
          : "",
      report.claims.has_value() ? absl::StrCat(", ", ClaimsText(*report.claims))
                                : "",
      report.problems,
      report.samples,
      report.mean_tokens,
      report.seconds));
  KeepEvaluation(when, report);
  state_->displays.metrics->RecordEvaluationEnd();
  AddEvaluationEvents(report);
  if (const auto rise = FindClaimRise(state_->evaluations.all());
      rise.has_value() && rise->step == report.policy_version) {
    LogWarning(Describe(*rise));
  }
}

void RunRecorder::AddEvaluationEvents(const EvaluationReport& report) {
  if (report.accuracy.has_value()) {
    AddEvent("eval/accuracy", report.policy_version, report.accuracy->mean);
  }
  if (report.marker_rate.has_value()) {
    AddEvent("eval/marker", report.policy_version, report.marker_rate->mean);
  }
  if (report.truncated.has_value()) {
    AddEvent("eval/truncated", report.policy_version, report.truncated->mean);
  }
  if (report.repeated.has_value()) {
    AddEvent("eval/repeated", report.policy_version, report.repeated->mean);
  }
  if (!report.claims.has_value()) return;
  AddEvent("eval/claim_probability/none",
           report.policy_version,
           report.claims->none.mean);
  if (report.claims->cross.has_value()) {
    AddEvent("eval/claim_probability/cross",
             report.policy_version,
             report.claims->cross->mean);
  }
}

absl::Status RunRecorder::WriteEvaluation(
    const std::string& when, const EvaluationReport& report) const {
  return state_->evaluations.Write(when, report);
}

// The events only repeat metrics.jsonl, so a failure is logged once.
void RunRecorder::AddEvent(const std::string& tag, int64_t step, double value) {
  const absl::Status status = state_->events.AddScalar(tag, step, value);
  if (status.ok() || state_->events_failed) return;
  state_->events_failed = true;
  LogWarning(std::string(status.message()));
}

absl::Status RunRecorder::Finish(double total_seconds) {
  BeginPhase(TrainerPhase::kDone);
  // The summary comes last, since it marks the run as finished.
  WriteReport(absl::OkStatus());
  const RunSummary summary{
      .folder = state_->folder,
      .steps = state_->steps,
      .start_step = state_->start_step,
      .seconds = total_seconds,
      .seconds_by_phase = state_->seconds,
      .evaluations = state_->evaluations.all(),
      .best = state_->evaluations.Best(),
      .has_evaluations_within = state_->loaded.config.evaluation.interval > 0,
      .clip_findings = state_->clip_watch.Findings()};
  RETURN_IF_ERROR(WriteSummary(summary));
  DAPD_FAILPOINT("run.after_summary");
  LogInfo(ClosingText(summary));
  return absl::OkStatus();
}

void RunRecorder::WriteReport(const absl::Status& outcome) {
  const absl::Status written =
      dapd::WriteReport(state_->folder,
                        state_->loaded,
                        *state_->displays.status,
                        *state_->displays.history,
                        state_->displays.answers->Get(),
                        outcome);
  if (!written.ok()) {
    LogWarning(absl::StrCat("no report could be written: ",
                            std::string(written.message())));
  }
}

}  // namespace dapd
