#include "services/cli/compare/run_results.h"

#include <yaml-cpp/yaml.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/list_folder.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/charts/run_history.h"
#include "common/config/load_config.h"
#include "common/config/run_folder.h"
#include "services/trainer/record/evaluation_report.h"
#include "services/trainer/record/run_name.h"
#include "services/trainer/record/step_lines.h"

namespace dapd {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxReportBytes = uint64_t{1} << 24;
constexpr size_t kMaxPoints = 1000;  // of a run's curve

// Removes from each map of `teachers` where its workers run and listen: every
// run of a sweep has its own addresses. Throws YAML::Exception.
void RemovePlaces(YAML::Node teachers) {
  if (!teachers.IsSequence()) return;
  for (YAML::Node teacher : teachers) {
    if (!teacher.IsMap()) continue;
    for (const char* key : {"addresses", "listen", "metrics_listen"}) {
      teacher.remove(key);
    }
  }
}

// Throws YAML::Exception.
void Flatten(const YAML::Node& node,
             const std::string& name,
             std::map<std::string, std::string>* settings) {
  if (!node.IsMap()) {
    YAML::Emitter text;
    text.SetMapFormat(YAML::Flow);
    text.SetSeqFormat(YAML::Flow);
    text << node;
    (*settings)[name] = node.IsScalar() ? node.Scalar() : text.c_str();
    return;
  }
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    Flatten(entry.second,
            name.empty() ? key : absl::StrCat(name, ".", key),
            settings);
  }
}

absl::Status ReadSettings(const std::string& path, RunResults* run) try {
  auto text = ReadFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) {
    return DataError(
        absl::StrCat(run->folder, " holds no run: there is no ", path));
  }
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kData);
  YAML::Node config = YAML::Load(*text);
  if (config.IsMap() && config["teachers"]) RemovePlaces(config["teachers"]);
  Flatten(config, "", &run->settings);
  const auto steps = run->settings.find("trainer.steps");
  if (steps == run->settings.end() ||
      !absl::SimpleAtoi(steps->second, &run->steps)) {
    return DataError(absl::StrCat(path, " has no trainer.steps"));
  }
  return absl::OkStatus();
} catch (const YAML::Exception& error) {
  return DataError(absl::StrCat(path, ": ", error.what()));
}

absl::Status ReadHistory(const std::string& path, RunResults* run) {
  if (!FileExists(path)) {
    return DataError(
        absl::StrCat(run->folder, " holds no run: there is no ", path));
  }
  RunHistory history(kMaxPoints);
  const auto damaged = ForEachStepLine(
      path, [&](int64_t step, const nlohmann::ordered_json& line) {
        double loss = 0.0;
        const bool has_loss =
            line.contains("loss") && ReadNumber(line["loss"], &loss);
        history.Add(line);
        run->step = step;
        run->loss = has_loss ? std::optional(loss) : std::nullopt;
        return absl::OkStatus();
      });
  if (!damaged.ok()) return WithExitCode(damaged.status(), ExitCode::kData);
  run->history = history.ToJson();
  return absl::OkStatus();
}

bool ReadInterval(const Json& json, Interval* interval) {
  return json.is_object() && json.contains("mean") && json.contains("low") &&
         json.contains("high") && ReadNumber(json["mean"], &interval->mean) &&
         ReadNumber(json["low"], &interval->low) &&
         ReadNumber(json["high"], &interval->high);
}

void CollectFigures(const Json& json,
                    const std::string& name,
                    std::map<std::string, Interval>* figures) {
  Interval interval;
  if (ReadInterval(json, &interval)) {
    (*figures)[name] = interval;
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      CollectFigures(
          value, name.empty() ? key : absl::StrCat(name, "/", key), figures);
    }
  }
}

// Reads into `held_out` and run->evaluations; skips a missing file and, with a
// warning, a damaged file.
absl::Status ReadEvaluation(const std::string& path,
                            RunResults* run,
                            HeldOutFigures* held_out) {
  const auto text = ReadFile(path, kMaxReportBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kData);
  const auto parsed = ParseJson(*text, path);
  if (!parsed.ok()) {
    LogWarning(absl::StrCat(parsed.status().message(), "; it is left out"));
    return absl::OkStatus();
  }
  const Json& json = *parsed;
  CollectFigures(json, "", &held_out->figures);
  if (json.contains("problems")) {
    ReadNumber(json["problems"], &held_out->problems);
  }
  if (json.contains("samples")) ReadNumber(json["samples"], &held_out->samples);
  if (json.contains("marker") && json["marker"].is_string()) {
    held_out->marker = json["marker"];
  }
  if (json.contains("held_out_digest") && json["held_out_digest"].is_string()) {
    held_out->digest = json["held_out_digest"];
  }
  int64_t version = 0;
  if (json.contains("policy_version") &&
      ReadNumber(json["policy_version"], &version)) {
    run->evaluations[version] = *held_out;
  }
  return absl::OkStatus();
}

// Reads the evaluations within the run, up to its last step.
absl::Status ReadEvaluationsWithin(const std::string& folder, RunResults* run) {
  if (!FileExists(folder)) return absl::OkStatus();
  const absl::StatusOr<std::vector<std::string>> names = ListFolder(folder);
  if (!names.ok()) return WithExitCode(names.status(), ExitCode::kData);
  for (const std::string& name : *names) {
    if (!IsWithinRun(name) || !absl::EndsWith(name, ".json")) continue;
    HeldOutFigures held_out;
    RETURN_IF_ERROR(ReadEvaluation(JoinPath(folder, name), run, &held_out));
  }
  std::erase_if(run->evaluations,
                [&](const auto& entry) { return entry.first > run->step; });
  return absl::OkStatus();
}

void LeaveOutOtherMeasures(RunResults* run) {
  if (run->evaluations.empty()) return;
  const std::string newest = run->evaluations.rbegin()->second.digest;
  if (!MeasureTheSame(run->before.digest, newest)) run->before = {};
  std::erase_if(run->evaluations, [&](const auto& entry) {
    return !MeasureTheSame(entry.second.digest, newest);
  });
}

}  // namespace

std::string SettingOf(const RunResults& run, const std::string& key) {
  const auto found = run.settings.find(key);
  return found == run.settings.end() ? "" : found->second;
}

absl::StatusOr<RunResults> ReadRunResults(const std::string& folder) {
  RunResults run;
  run.folder = folder;
  run.name = RunName(folder);
  RETURN_IF_ERROR(ReadSettings(JoinPath(folder, "config.yaml"), &run));
  RETURN_IF_ERROR(ReadHistory(JoinPath(folder, "metrics.jsonl"), &run));
  RETURN_IF_ERROR(ReadEvaluation(
      JoinPath(folder, "evaluation/before.json"), &run, &run.before));
  RETURN_IF_ERROR(ReadEvaluationsWithin(JoinPath(folder, "evaluation"), &run));
  run.finished = FinishedStep(folder) >= run.steps;
  // A summary from an earlier end after fewer steps is not this run's end.
  if (run.finished) {
    RETURN_IF_ERROR(ReadEvaluation(
        JoinPath(folder, "evaluation/after.json"), &run, &run.after));
  }
  LeaveOutOtherMeasures(&run);
  return run;
}

}  // namespace dapd
