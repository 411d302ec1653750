#include "services/trainer/run_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/metrics/tensorboard_writer.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// Appends whole lines; each is on disk before the call returns.
class LineAppender {
 public:
  static absl::StatusOr<LineAppender> Open(const std::string& path) {
    const int descriptor =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor < 0) {
      return absl::InternalError(
          absl::StrCat("cannot create ", path, ": ", std::strerror(errno)));
    }
    return LineAppender(path, descriptor);
  }
  LineAppender(LineAppender&& other) noexcept
      : path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  LineAppender& operator=(LineAppender&&) = delete;
  ~LineAppender() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  absl::Status Append(const Json& row) {
    const std::string line = row.dump() + "\n";
    if (::write(descriptor_, line.data(), line.size()) !=
            static_cast<ssize_t>(line.size()) ||
        ::fdatasync(descriptor_) != 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot write ", path_, ": ", std::strerror(errno)));
    }
    return absl::OkStatus();
  }

 private:
  LineAppender(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  std::string path_;
  int descriptor_;
};

Json ToJson(const Interval& interval) {
  return {
      {"mean", interval.mean}, {"low", interval.low}, {"high", interval.high}};
}

Json ToJson(const EvaluationReport& report) {
  Json divergences = Json::object();
  for (const TermDivergence& term : report.divergences) {
    divergences[term.name] = ToJson(term.unclipped);
  }
  return {{"policy_version", report.policy_version},
          {"problems", report.problems},
          {"samples", report.samples},
          {"accuracy", ToJson(report.accuracy)},
          {"format_rate", ToJson(report.format_rate)},
          {"mean_tokens", report.mean_tokens},
          {"unclipped_divergence", divergences},
          {"seconds", report.seconds}};
}

std::string Percent(const Interval& interval) {
  return absl::StrFormat("%5.1f %% [%.1f, %.1f]",
                         100 * interval.mean,
                         100 * interval.low,
                         100 * interval.high);
}

Json StepLine(const StepReport& report) {
  Json line = ToJson(report.step, report.objective, report.optimizer);
  line["adapter_digest"] = report.adapter_digest;
  line["snapshot_version"] = report.snapshot_version;
  line["samples"] = report.samples;
  line["untrainable_samples"] = report.untrainable_samples;
  line["rollout"] = {{"mean_tokens", report.mean_rollout_tokens},
                     {"truncated_fraction", report.truncated_fraction},
                     {"boxed_fraction", report.boxed_fraction},
                     {"correct_fraction", report.correct_fraction}};
  line["generated_tokens"] = report.generated_tokens;
  line["scored_tokens"] = report.scored_tokens;
  line["payload_bytes"] = report.payload_bytes;
  line["seconds"] = report.seconds;
  return line;
}

}  // namespace

struct RunRecorder::State {
  Config config;
  std::string folder;
  TrainerMetrics* metrics;
  TrainerStatus* status;
  LineAppender lines;
  TensorBoardWriter events;
  Progress progress;
  std::map<std::string, EvaluationReport> evaluations;
  std::map<std::string, double> seconds;  // by phase, over all steps
  int64_t steps = 0;
};

RunRecorder::RunRecorder(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

RunRecorder::~RunRecorder() = default;

absl::StatusOr<std::unique_ptr<RunRecorder>> RunRecorder::Create(
    const LoadedConfig& loaded,
    TrainerMetrics* metrics,
    TrainerStatus* status) {
  const Config& config = loaded.config;
  const std::string folder = JoinPath(config.run.output_dir, config.run.name);
  if (FileExists(JoinPath(folder, "config.yaml"))) {
    return ConfigError(
        absl::StrCat(folder,
                     " already holds a run; choose another run.name (--set "
                     "run.name=...) or remove that folder"));
  }
  RETURN_IF_ERROR(MakeDirectories(JoinPath(folder, "samples")));
  RETURN_IF_ERROR(MakeDirectories(JoinPath(folder, "checkpoints")));
  RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(folder, "config.yaml"), DumpConfig(loaded)));
  ASSIGN_OR_RETURN(LineAppender lines,
                   LineAppender::Open(JoinPath(folder, "metrics.jsonl")));
  ASSIGN_OR_RETURN(TensorBoardWriter events, TensorBoardWriter::Create(folder));
  status->Change([&](TrainerState& state) {
    state.run_name = config.run.name;
    state.run_folder = folder;
    state.total_steps = config.trainer.steps;
  });
  return std::unique_ptr<RunRecorder>(new RunRecorder(
      std::unique_ptr<State>(new State{config,
                                       folder,
                                       metrics,
                                       status,
                                       std::move(lines),
                                       std::move(events),
                                       Progress("steps", config.trainer.steps),
                                       {},
                                       {}})));
}

const std::string& RunRecorder::folder() const { return state_->folder; }

void RunRecorder::BeginPhase(const std::string& phase) {
  state_->status->Change([&](TrainerState& s) { s.phase = phase; });
}

absl::Status RunRecorder::RecordSamples(
    int64_t step, const std::vector<RolloutRecord>& records) {
  ASSIGN_OR_RETURN(
      JsonLinesWriter writer,
      JsonLinesWriter::Open(JoinPath(
          state_->folder, absl::StrFormat("samples/step-%06d.jsonl", step))));
  for (const RolloutRecord& record : records) {
    RETURN_IF_ERROR(writer.Append(
        {{"id", record.problem->id},
         {"problem", record.problem->problem},
         {"reference", record.problem->solution},
         {"rollout_ids", record.ids},
         {"rollout", record.text},
         {"finish_reason", record.end == RolloutEnd::kEos ? "eos" : "length"},
         {"has_box", record.has_box},
         {"correct", record.correct}}));
  }
  return writer.Commit();
}

absl::Status RunRecorder::RecordStep(const StepReport& report) {
  RETURN_IF_ERROR(state_->lines.Append(StepLine(report)));
  std::map<std::string, double> scalars = {
      {"loss/total", report.objective.loss},
      {"optim/grad_norm", report.optimizer.gradient_norm},
      {"optim/lr", report.optimizer.learning_rate},
      {"rollout/length", report.mean_rollout_tokens},
      {"rollout/truncated_ratio", report.truncated_fraction},
      {"rollout/boxed_ratio", report.boxed_fraction},
      {"rollout/accuracy", report.correct_fraction}};
  for (const TermMetrics& term : report.objective.terms) {
    scalars["loss/" + term.name] = term.value;
    scalars["kl/" + term.name] = term.unclipped;
    scalars["clipped_fraction/" + term.name] = term.clipped_fraction;
  }
  for (const auto& [phase, seconds] : report.seconds) {
    scalars["time/" + phase] = seconds;
    state_->seconds[phase] += seconds;
  }
  for (const auto& [tag, value] : scalars) {
    RETURN_IF_ERROR(state_->events.AddScalar(tag, report.step, value));
  }
  state_->metrics->RecordStep(report);
  ++state_->steps;
  state_->progress.Update(
      report.step,
      absl::StrFormat("loss %.4f  grad %.3f  rollout %.0f tokens",
                      report.objective.loss,
                      report.optimizer.gradient_norm,
                      report.mean_rollout_tokens));
  state_->status->Change([&](TrainerState& s) {
    s.step = report.step;
    s.adapter_digest = report.adapter_digest;
    s.snapshot_step = report.snapshot_version;
    s.eta_seconds = state_->progress.EtaSeconds();
    const auto left = static_cast<double>(s.total_steps - s.step);
    s.seconds_per_step = left > 0 ? s.eta_seconds / left : 0.0;
    s.loss = report.objective.loss;
    s.gradient_norm = report.optimizer.gradient_norm;
    s.learning_rate = report.optimizer.learning_rate;
    s.mean_rollout_tokens = report.mean_rollout_tokens;
    s.terms.clear();
    for (const TermMetrics& term : report.objective.terms) {
      s.terms.push_back(
          {term.name, term.value, term.weight, term.clipped_fraction});
    }
  });
  return absl::OkStatus();
}

absl::Status RunRecorder::RecordEvaluation(const std::string& when,
                                           const EvaluationReport& report) {
  LogInfo(absl::StrFormat(
      "evaluation %s training: accuracy %s, format rate %s (95 %% interval; "
      "%d problems x %d), %.0f tokens an answer, %.0f s",
      when,
      Percent(report.accuracy),
      Percent(report.format_rate),
      report.problems,
      report.samples,
      report.mean_tokens,
      report.seconds));
  state_->evaluations.emplace(when, report);
  return state_->events.AddScalar(
      "eval/accuracy", report.policy_version, report.accuracy.mean);
}

absl::Status RunRecorder::Finish(double total_seconds) {
  BeginPhase("done");
  Json evaluations = Json::object();
  for (const auto& [when, report] : state_->evaluations) {
    evaluations[when] = ToJson(report);
  }
  RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(state_->folder, "summary.json"),
                          Json{{"steps", state_->steps},
                               {"seconds", total_seconds},
                               {"seconds_by_phase", state_->seconds},
                               {"evaluation", evaluations}}
                                  .dump(2) +
                              "\n"));
  std::string text = absl::StrFormat(
      "done: %d steps in %.0f s (", state_->steps, total_seconds);
  for (const auto& [phase, seconds] : state_->seconds) {
    absl::StrAppendFormat(&text, " %s %.0f s", phase, seconds);
  }
  absl::StrAppend(&text, " )\n");
  const auto before = state_->evaluations.find("before");
  const auto after = state_->evaluations.find("after");
  if (before != state_->evaluations.end() &&
      after != state_->evaluations.end()) {
    absl::StrAppendFormat(
        &text,
        "  held out              before                    after\n"
        "  accuracy    %s   %s\n"
        "  format rate %s   %s\n",
        Percent(before->second.accuracy),
        Percent(after->second.accuracy),
        Percent(before->second.format_rate),
        Percent(after->second.format_rate));
    for (size_t k = 0; k < before->second.divergences.size(); ++k) {
      const TermDivergence& a = before->second.divergences[k];
      const TermDivergence& b = after->second.divergences[k];
      absl::StrAppendFormat(
          &text,
          "  true KL %-21s %.4f [%.4f, %.4f]   %.4f [%.4f, %.4f]\n",
          a.name,
          a.unclipped.mean,
          a.unclipped.low,
          a.unclipped.high,
          b.unclipped.mean,
          b.unclipped.low,
          b.unclipped.high);
    }
  }
  absl::StrAppend(&text, "  adapter (PEFT): ", state_->folder, "/adapter");
  LogInfo(text);
  return absl::OkStatus();
}

}  // namespace dapd
