// dapd replay: recorded samples through the objective, without services.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/config/preset_terms.h"
#include "common/config/step_kind.h"
#include "common/data/sample_rows.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/model_card.h"
#include "common/model/weights/adapter.h"
#include "common/objective/micro_batch.h"
#include "common/tensor/safetensors.h"
#include "common/tensor/torch_bridge.h"
#include "common/terms/term.h"
#include "common/training/metric_table.h"
#include "common/training/step_metrics.h"
#include "services/cli/command.h"
#include "services/cli/local_policy.h"

namespace dapd {
namespace {

struct ReplayOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string batch;
  std::string output;
  LocalPolicyOptions policy;
  bool apply = false;
};

// The parts of one replay.
class Replay {
 public:
  static absl::StatusOr<std::unique_ptr<Replay>> Load(
      const ReplayOptions& options);

  absl::Status Run();

 private:
  explicit Replay(ReplayOptions options) : options_(std::move(options)) {}

  void LeaveOutUntrainable();
  // Computes losses and gradients of rows_[begin, end) as one batch.
  absl::StatusOr<ObjectiveMetrics> Accumulate(size_t begin, size_t end);
  absl::StatusOr<ScoredSample> ScoreSample(const SampleRow& row);
  // Returns how many micro-batches of rows_[begin, end) have a sample that was
  // not left out of its step.
  size_t CountMicroBatches(size_t begin, size_t end) const;
  absl::Status ApplyAll();
  absl::Status WriteGradients();

  const ReplayOptions options_;
  Config config_;
  LocalPolicy local_;
  std::vector<Term> terms_;
  std::vector<SampleRow> rows_;
  HeadWorkspace head_workspace_;
  std::unique_ptr<Progress> progress_;  // of the samples
};

absl::StatusOr<std::unique_ptr<Replay>> Replay::Load(
    const ReplayOptions& options) {
  auto replay = std::unique_ptr<Replay>(new Replay(options));
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  const Config& config = replay->config_ = loaded.config;
  replay->terms_ = ExpandTerms(config.objective);
  ASSIGN_OR_RETURN(replay->local_, LoadLocalPolicy(config, options.policy));
  ASSIGN_OR_RETURN(
      replay->rows_,
      ReadSampleRows(options.batch, replay->local_.weights->config.vocab_size));
  RETURN_IF_ERROR(
      FillContexts(config, *replay->local_.text.views, &replay->rows_));
  replay->LeaveOutUntrainable();
  return replay;
}

// Leaves out rows as a step of a run does. Refuses a row without a rollout if a
// term reads one.
void Replay::LeaveOutUntrainable() {
  const bool scores_references =
      ScoresReferences(terms_) && !TakesTurns(config_);
  for (SampleRow& row : rows_) {
    const Sample& sample = row.sample;
    if (sample.rollout_ids.empty()) continue;
    row.is_left_out |= !local_.text.views->IsTrained(
        sample.rollout_ids, sample.reference_ids, scores_references);
  }
}

absl::StatusOr<ScoredSample> Replay::ScoreSample(const SampleRow& row) {
  const Sample& sample = row.sample;
  ScoredSample scored;
  scored.id = sample.id;
  scored.teacher = row.teacher;
  ASSIGN_OR_RETURN(
      scored.views,
      BuildViewsWithin(
          *local_.text.views, sample, local_.teachers->max_view()));
  // The step that sampled the answer trained no reference.
  if (TakesTurns(config_) && !sample.rollout_ids.empty()) {
    DropViews(Completion::kReference, &scored.views);
  }
  // Unscored tokens stand at the answer's end.
  const View& answer =
      scored.views[static_cast<size_t>(ViewName::kNoneRollout)];
  scored.sampler_logprobs = row.sampler_logprobs;
  scored.sampler_logprobs.resize(std::min(
      row.sampler_logprobs.size(), static_cast<size_t>(answer.scored_count)));
  ASSIGN_OR_RETURN(scored.scores,
                   local_.teachers->Score(*local_.weights,
                                          *local_.policy,
                                          TeacherPasses(terms_),
                                          row.teacher,
                                          scored.views));
  return scored;
}

size_t Replay::CountMicroBatches(size_t begin, size_t end) const {
  const auto size = static_cast<size_t>(config_.trainer.micro_batch_size);
  size_t count = 0;
  for (size_t first = begin; first < end; first += size) {
    const size_t last = std::min(first + size, end);
    count += std::any_of(rows_.begin() + static_cast<int64_t>(first),
                         rows_.begin() + static_cast<int64_t>(last),
                         [](const SampleRow& row) { return !row.is_left_out; });
  }
  return count;
}

absl::StatusOr<ObjectiveMetrics> Replay::Accumulate(size_t begin, size_t end) {
  const auto size = static_cast<size_t>(config_.trainer.micro_batch_size);
  const size_t micro_batches = CountMicroBatches(begin, end);
  ObjectiveAccumulator accumulator(terms_);
  for (size_t first = begin; first < end; first += size) {
    std::vector<ScoredSample> scored;
    for (size_t i = first; i < std::min(first + size, end); ++i) {
      if (rows_[i].is_left_out) continue;
      ASSIGN_OR_RETURN(ScoredSample sample, ScoreSample(rows_[i]));
      scored.push_back(std::move(sample));
    }
    if (scored.empty()) continue;
    const MicroBatchResult result = AccumulateMicroBatch(
        *local_.weights,
        local_.policy->live(),
        terms_,
        scored,
        {.head = {.temperature = config_.objective.temperature,
                  .vocabulary = local_.teachers->vocabulary(),
                  .bfloat16_logits =
                      config_.trainer.logits_precision == Precision::kBfloat16,
                  .workspace = &head_workspace_},
         .gradient_scale = 1.0 / static_cast<double>(micro_batches),
         .limits = MakePassLimits(config_, *local_.weights)});
    accumulator.Add(result.sums, result.by_teacher);
    progress_->Update(static_cast<int64_t>(std::min(first + size, end)));
  }
  return accumulator.Finish();
}

absl::Status Replay::WriteGradients() {
  return WriteSafetensors(JoinPath(options_.output, "gradients.safetensors"),
                          local_.policy->Gradients(),
                          {{"format", "pt"}});
}

absl::Status Replay::ApplyAll() {
  const auto batch = static_cast<size_t>(config_.trainer.batch_size);
  ASSIGN_OR_RETURN(
      JsonLinesWriter lines,
      JsonLinesWriter::Open(JoinPath(options_.output, "metrics.jsonl")));
  for (size_t begin = 0; begin < rows_.size(); begin += batch) {
    ASSIGN_OR_RETURN(const ObjectiveMetrics objective,
                     Accumulate(begin, std::min(begin + batch, rows_.size())));
    ASSIGN_OR_RETURN(const OptimizerStep step,
                     HasGradient(objective.terms) ? local_.policy->Step()
                                                  : local_.policy->Rest());
    RETURN_IF_ERROR(
        lines.Append(ObjectiveLine(local_.policy->version(), objective, step)));
    LogInfo(absl::StrCat("step ",
                         local_.policy->version(),
                         ": loss ",
                         objective.loss,
                         ", gradient norm ",
                         step.gradient_norm));
  }
  RETURN_IF_ERROR(lines.Commit());
  const std::string folder = JoinPath(options_.output, "adapter");
  const std::string base = BaseModelName(config_.model.path);
  RETURN_IF_ERROR(WriteAdapter(folder, local_.policy->live(), base));
  return WriteFileAtomically(
      JoinPath(folder, kModelCardFile),
      FormatModelCard({.title = absl::StrCat("Replay of ",
                                             local_.policy->version(),
                                             " steps of recorded samples"),
                       .base_model = base,
                       .lora = local_.policy->live().config}));
}

absl::Status Replay::Run() {
  RETURN_IF_ERROR(MakeDirectories(options_.output));
  progress_ =
      std::make_unique<Progress>("samples", static_cast<int64_t>(rows_.size()));
  if (options_.apply) return ApplyAll();
  ASSIGN_OR_RETURN(const ObjectiveMetrics objective,
                   Accumulate(0, rows_.size()));
  RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(options_.output, "objective.json"),
                          ToJson(objective).dump(2) + "\n"));
  return WriteGradients();
}

absl::Status RunReplay(const ReplayOptions& options) {
  return CatchTorch([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<Replay> replay,
                     Replay::Load(options));
    return replay->Run();
  });
}

}  // namespace

void AddReplayCommand(Command& app) {
  auto options = std::make_shared<ReplayOptions>();
  Command command = app.AddSubcommand(
      "replay",
      "Runs recorded samples through the objective, without services");
  command.AddOption("--config", options->config, "YAML configuration")
      .Path()
      .Required();
  command.AddOption(
      "--set", options->overrides, "key=value, overrides the file");
  command
      .AddOption("--batch",
                 options->batch,
                 "JSON Lines {id, problem, reference, rollout_ids}")
      .Path()
      .Required();
  command.AddOption("--output", options->output, "folder for the results")
      .Path()
      .Required();
  options->policy.AddFlags(command);
  command.AddFlag(
      "--apply",
      options->apply,
      "take an optimizer step every batch_size rows, as at a run's start");
  command.Does([options] { return RunReplay(*options); });
}

}  // namespace dapd
