#include "services/trainer/record/run_overview.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/last_line.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/config/run_folder.h"
#include "services/trainer/record/disk_wait.h"
#include "services/trainer/record/run_name.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxMetricsLineBytes = 1 << 20;

absl::Status ReadPlannedSteps(RunOverview* run) try {
  const std::string path = JoinPath(run->folder, "config.yaml");
  const auto text = ReadFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) {
    return DataError(
        absl::StrCat(run->folder, " holds no run: there is no ", path));
  }
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kData);
  const YAML::Node steps = YAML::Load(*text)["trainer"]["steps"];
  if (!steps.IsScalar() || !absl::SimpleAtoi(steps.Scalar(), &run->steps)) {
    return DataError(absl::StrCat(path, " has no trainer.steps"));
  }
  return absl::OkStatus();
} catch (const YAML::Exception& error) {
  return DataError(
      absl::StrCat(JoinPath(run->folder, "config.yaml"), ": ", error.what()));
}

absl::Status ReadLastStep(RunOverview* run) {
  const std::string path = JoinPath(run->folder, "metrics.jsonl");
  const auto line = ReadLastLine(path, kMaxMetricsLineBytes);
  if (absl::IsNotFound(line.status())) return absl::OkStatus();
  if (!line.ok()) return WithExitCode(line.status(), ExitCode::kData);
  if (line->empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const nlohmann::json json,
                   ParseJson(*line, absl::StrCat(path, ", its last line")));
  if (!json.is_object() || !json.contains("step") ||
      !ReadNumber(json["step"], &run->step)) {
    return DataError(absl::StrCat(path, ": its last line is not a step"));
  }
  double loss = 0.0;
  if (json.contains("loss") && ReadNumber(json["loss"], &loss) &&
      std::isfinite(loss)) {
    run->loss = loss;
  }
  if (json.contains("adapter_digest") && json["adapter_digest"].is_string()) {
    run->adapter_digest = json["adapter_digest"];
  }
  return absl::OkStatus();
}

absl::Status ReadEvaluation(const std::string& folder,
                            const std::string& when,
                            std::optional<EvaluationReport>* report) {
  auto read = ReadEvaluationReport(
      JoinPath(folder, absl::StrCat("evaluation/", when, ".json")));
  if (absl::IsNotFound(read.status())) return absl::OkStatus();
  if (!read.ok()) return WithExitCode(read.status(), ExitCode::kData);
  *report = *std::move(read);
  return absl::OkStatus();
}

absl::Time LastWritten(const std::string& folder) {
  absl::Time last = absl::InfinitePast();
  for (const char* name : {"config.yaml",
                           "ledger.jsonl",
                           "metrics.jsonl",
                           "outcome.json",
                           "summary.json"}) {
    struct stat info = {};
    if (::stat(JoinPath(folder, name).c_str(), &info) != 0) continue;
    last = std::max(last, absl::TimeFromTimespec(info.st_mtim));
  }
  return last;
}

bool NeverBegan(const RunOverview& run) {
  return run.outcome.has_value() &&
         !FileExists(JoinPath(run.folder, "config.yaml")) &&
         !FileExists(JoinPath(run.folder, "metrics.jsonl"));
}

absl::StatusOr<RunState> StateOf(const RunOverview& run) {
  // A finished run may be held: with trainer.when_done: serve the trainer
  // stays.
  if (run.steps > 0 && HasFinished(run.folder, run.steps)) {
    return RunState::kFinished;
  }
  ASSIGN_OR_RETURN(const bool is_held, IsHeld(run.folder));
  if (is_held) {
    ASSIGN_OR_RETURN(const bool waits, WaitsForDisk(run.folder));
    return waits ? RunState::kPaused : RunState::kRunning;
  }
  return run.outcome.has_value() && run.outcome->state == "failed"
             ? RunState::kFailed
             : RunState::kInterrupted;
}

}  // namespace

const char* NameOf(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kPaused:
      return "paused";
    case RunState::kFinished:
      return "finished";
    case RunState::kFailed:
      return "failed";
    case RunState::kInterrupted:
      return "interrupted";
  }
  return "";
}

absl::StatusOr<RunOverview> ReadRunOverview(const std::string& folder) {
  RunOverview run{.folder = folder, .name = RunName(folder)};
  run.outcome = ReadOutcome(folder);
  if (NeverBegan(run)) {
    ASSIGN_OR_RETURN(run.state, StateOf(run));
    run.last_written = LastWritten(folder);
    return run;
  }
  RETURN_IF_ERROR(ReadPlannedSteps(&run));
  RETURN_IF_ERROR(ReadLastStep(&run));
  ASSIGN_OR_RETURN(run.state, StateOf(run));
  RETURN_IF_ERROR(ReadEvaluation(folder, "before", &run.before));
  // A summary from an earlier end after fewer steps is not this run's end.
  if (HasFinished(folder, run.steps)) {
    RETURN_IF_ERROR(ReadEvaluation(folder, "after", &run.after));
  }
  if (run.before.has_value() && run.after.has_value() &&
      !MeasureTheSame(run.before->held_out_digest,
                      run.after->held_out_digest)) {
    run.before.reset();
  }
  run.last_written = LastWritten(folder);
  return run;
}

}  // namespace dapd
