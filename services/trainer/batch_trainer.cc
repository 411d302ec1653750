#include "services/trainer/batch_trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/objective/micro_batch.h"
#include "common/training/step_metrics.h"
#include "services/trainer/make_policy_update.h"
#include "services/trainer/phase_timer.h"
#include "services/trainer/policy_update_writer.h"

namespace dapd {
namespace {

// Enough tokens that other weights cannot agree by chance.
constexpr size_t kProbeTokens = 16;

// News of an answer more often than this costs more than it hides.
constexpr int64_t kLeastStride = 8;

PipelineOptions MakePipelineOptions(const BatchTrainerParts& parts) {
  PipelineOptions options;
  options.passes = TeacherPasses(parts.terms);
  options.payload = ParseTeacherPayload(parts.config.teacher.payload).value();
  options.top_k = parts.config.teacher.top_k;
  options.temperature = parts.config.objective.temperature;
  options.device = parts.weights->device();
  if (parts.config.teacher.streaming) {
    options.streaming_stride =
        std::max(kLeastStride, parts.config.teacher.chunk_tokens / 4);
  }
  options.on_progress = parts.on_progress;
  return options;
}

// Micro-batches keep the batch's grouping; an untrainable sample leaves a gap,
// and a micro-batch of gaps only does not count.
std::vector<std::vector<size_t>> MicroBatches(
    const std::vector<RolloutRecord>& records, size_t size, int64_t step) {
  std::vector<std::vector<size_t>> micro_batches;
  for (size_t begin = 0; begin < records.size(); begin += size) {
    std::vector<size_t> group;
    for (size_t i = begin; i < std::min(begin + size, records.size()); ++i) {
      if (records[i].trainable) {
        group.push_back(i);
        continue;
      }
      LogWarning(absl::StrCat("step ",
                              step,
                              ": the answer to problem '",
                              records[i].problem->id,
                              "' has nothing to score; left out"));
    }
    if (!group.empty()) micro_batches.push_back(std::move(group));
  }
  return micro_batches;
}

}  // namespace

BatchTrainer::BatchTrainer(BatchTrainerParts parts)
    : parts_(std::move(parts)),
      pipeline_(parts_.rollouts,
                parts_.teachers,
                parts_.views,
                parts_.tokenizer,
                MakePipelineOptions(parts_)) {}

absl::Status BatchTrainer::Start() {
  ASSIGN_OR_RETURN(probe_ids_,
                   parts_.views.RolloutPrompt(parts_.data.problems[0].problem));
  if (probe_ids_.size() > kProbeTokens) probe_ids_.resize(kProbeTokens);
  ASSIGN_OR_RETURN(
      gradient_sum_,
      GradientSum::Create(parts_.collective,
                          parts_.weights->device(),
                          parts_.config.trainer.rank_timeout_seconds));
  RETURN_IF_ERROR(PublishSnapshot());
  DAPD_FAILPOINT("publish.after_first_snapshot");
  return PublishLive();
}

std::vector<int64_t> BatchTrainer::BatchRows(int64_t step) const {
  return StepRows(static_cast<int64_t>(parts_.data.problems.size()),
                  parts_.config.run.seed,
                  step - 1,
                  parts_.config.trainer.batch_size);
}

absl::StatusOr<std::vector<RolloutRecord>> BatchTrainer::Sample(
    const StepPlan& plan, const OnAnswer& on_answer, StepReport* report) {
  const Config& config = parts_.config;
  parts_.on_phase("rollout");
  PhaseTimer timer(&report->seconds["rollout"]);
  report->step = plan.step;
  payload_bytes_before_ = pipeline_.payload_bytes();
  scored_tokens_before_ = pipeline_.scored_tokens();
  teacher_cost_before_ = pipeline_.teacher_cost();
  const std::vector<int64_t> rows = BatchRows(plan.step);
  const auto size = static_cast<size_t>(config.trainer.micro_batch_size);
  const RankSlice groups =
      SliceOf(parts_.collective, (rows.size() + size - 1) / size);
  slice_begin_ = static_cast<int64_t>(groups.begin * size);
  const size_t slice_end = std::min(groups.end * size, rows.size());

  std::vector<PipelineInput> inputs;
  for (size_t sample = groups.begin * size; sample < slice_end; ++sample) {
    const int64_t row = rows[sample];
    const auto recalled = plan.recalled.find(static_cast<int64_t>(sample));
    inputs.push_back(
        {&parts_.data.problems[static_cast<size_t>(row)],
         {.seed = config.run.seed,
          .step = static_cast<uint32_t>(plan.step - 1),
          .example = static_cast<uint32_t>(row)},
         recalled == plan.recalled.end() ? nullptr : &recalled->second});
  }
  DAPD_FAILPOINT("rollout.before_start");
  RETURN_IF_ERROR(
      pipeline_.Start(std::move(inputs),
                      {.temperature = config.rollout.temperature,
                       .top_k = config.rollout.top_k,
                       .top_p = config.rollout.top_p,
                       .max_new_tokens = config.rollout.max_new_tokens},
                      /*snapshot_is_base=*/parts_.policy.snapshot() == nullptr,
                      /*with_scores=*/true));
  DAPD_FAILPOINT("rollout.after_start");
  to_report_.clear();
  ASSIGN_OR_RETURN(slice_,
                   pipeline_.CollectRollouts([&](const PipelineInput& input,
                                                 size_t index,
                                                 const RolloutResult& result) {
                     const int64_t sample =
                         slice_begin_ + static_cast<int64_t>(index);
                     if (on_answer)
                       return on_answer(sample, *input.problem, result);
                     to_report_.push_back({sample, result});
                     return absl::OkStatus();
                   }));
  DAPD_FAILPOINT("rollout.after_collect");
  std::vector<RolloutRecord> records = slice_;
  RETURN_IF_ERROR(ShareAnswers(rows, on_answer, &records));
  for (const auto& [sample, result] : plan.recalled) {
    // Those of the own slice are in `records` already.
    const bool own =
        sample >= slice_begin_ && sample < static_cast<int64_t>(slice_end);
    if (own || records.empty()) continue;
    const int64_t row = rows[static_cast<size_t>(sample)];
    ASSIGN_OR_RETURN(
        records[static_cast<size_t>(sample)],
        pipeline_.MakeRecord(parts_.data.problems[static_cast<size_t>(row)],
                             result));
  }
  return records;
}

// At rank 0 `records` grows to the whole batch; elsewhere it is emptied.
absl::Status BatchTrainer::ShareAnswers(const std::vector<int64_t>& rows,
                                        const OnAnswer& on_answer,
                                        std::vector<RolloutRecord>* records) {
  ASSIGN_OR_RETURN(const std::vector<std::string> gathered,
                   parts_.collective.Gather(SerializeAnswers(to_report_)));
  if (parts_.collective.rank() != 0) {
    records->clear();
    return absl::OkStatus();
  }
  records->resize(rows.size());
  for (size_t rank = 1; rank < gathered.size(); ++rank) {
    ASSIGN_OR_RETURN(const std::vector<BatchAnswer> answers,
                     ParseAnswers(gathered[rank]));
    for (const BatchAnswer& answer : answers) {
      if (answer.sample < 0 ||
          answer.sample >= static_cast<int64_t>(rows.size())) {
        return absl::DataLossError(absl::StrCat(
            "trainer rank ", rank, " answered sample ", answer.sample));
      }
      const auto sample = static_cast<size_t>(answer.sample);
      const Problem& problem =
          parts_.data.problems[static_cast<size_t>(rows[sample])];
      RETURN_IF_ERROR(on_answer(answer.sample, problem, answer.result));
      ASSIGN_OR_RETURN((*records)[sample],
                       pipeline_.MakeRecord(problem, answer.result));
    }
  }
  return absl::OkStatus();
}

absl::Status BatchTrainer::Train(StepReport* report) {
  RETURN_IF_ERROR(AccumulateSlice(report));
  parts_.on_phase("publishing");
  std::unique_ptr<PolicyUpdateWriter> writer;
  {
    PhaseTimer timer(&report->seconds["optimizer"]);
    if (parts_.collective.size() > 1) {
      at::Tensor gradient = parts_.policy.FlatGradient();
      RETURN_IF_ERROR(gradient_sum_->Add(gradient));
      parts_.policy.SetFlatGradient(gradient);
    }
    DAPD_FAILPOINT("optimizer.before_step");
    ASSIGN_OR_RETURN(writer,
                     PolicyUpdateWriter::Start(parts_.policy.live(),
                                               parts_.policy.version() + 1,
                                               parts_.config.model.path,
                                               probe_ids_));
    bool sending = false;  // once it is known that there will be a step
    ASSIGN_OR_RETURN(report->optimizer,
                     parts_.policy.Step([&](const at::Tensor& tensor) {
                       if (!std::exchange(sending, true)) {
                         parts_.rollouts.SetPolicy(writer->update());
                       }
                       return writer->Append(tensor);
                     }));
    DAPD_FAILPOINT("optimizer.after_step");
  }
  PhaseTimer timer(&report->seconds["publish"]);
  if (report->optimizer.snapshot_refreshed) {
    DAPD_FAILPOINT("publish.before_snapshot");
    RETURN_IF_ERROR(PublishSnapshot());
    DAPD_FAILPOINT("publish.after_snapshot");
  }
  DAPD_FAILPOINT("publish.before_live");
  writer->Finish(*parts_.weights, parts_.policy.live());
  live_digest_ = writer->update()->adapter.digest;
  DAPD_FAILPOINT("publish.after_live");
  report->adapter_digest = live_digest_;
  report->snapshot_version = parts_.policy.snapshot_version();
  return CompareRanks(report);
}

absl::Status BatchTrainer::CompareRanks(StepReport* report) {
  report->payload_bytes = pipeline_.payload_bytes() - payload_bytes_before_;
  report->scored_tokens = pipeline_.scored_tokens() - scored_tokens_before_;
  const TeacherCost& cost = pipeline_.teacher_cost();
  report->teacher_seconds = cost.after - teacher_cost_before_.after;
  report->teacher_ahead_seconds = cost.ahead - teacher_cost_before_.ahead;
  ASSIGN_OR_RETURN(
      const std::vector<std::string> parts,
      parts_.collective.Gather(absl::StrCat(live_digest_,
                                            " ",
                                            report->payload_bytes,
                                            " ",
                                            report->scored_tokens,
                                            " ",
                                            report->teacher_seconds,
                                            " ",
                                            report->teacher_ahead_seconds)));
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    const std::vector<std::string> fields = absl::StrSplit(parts[rank], ' ');
    uint64_t payload_bytes = 0;
    int64_t scored_tokens = 0;
    double seconds = 0.0;
    double ahead_seconds = 0.0;
    if (fields.size() != 5 || fields[0] != live_digest_ ||
        !absl::SimpleAtoi(fields[1], &payload_bytes) ||
        !absl::SimpleAtoi(fields[2], &scored_tokens) ||
        !absl::SimpleAtod(fields[3], &seconds) ||
        !absl::SimpleAtod(fields[4], &ahead_seconds)) {
      return absl::DataLossError(
          absl::StrCat("trainer rank ",
                       rank,
                       " ended step ",
                       report->step,
                       " in other weights than rank 0; are its processor and "
                       "thread count the same?"));
    }
    report->payload_bytes += payload_bytes;
    report->scored_tokens += scored_tokens;
    report->teacher_seconds += seconds;
    report->teacher_ahead_seconds += ahead_seconds;
  }
  return absl::OkStatus();
}

absl::Status BatchTrainer::AccumulateSlice(StepReport* report) {
  const Config& config = parts_.config;
  const std::vector<std::vector<size_t>> micro_batches =
      MicroBatches(slice_,
                   static_cast<size_t>(config.trainer.micro_batch_size),
                   report->step);
  std::vector<float> count = {static_cast<float>(micro_batches.size())};
  RETURN_IF_ERROR(parts_.collective.Sum(absl::MakeSpan(count)));
  if (count[0] == 0.0F) {
    return absl::DataLossError(
        absl::StrCat("no answer of step ",
                     report->step,
                     " has anything to score; every rollout was empty"));
  }
  ObjectiveAccumulator accumulator(parts_.terms);
  const auto total = static_cast<int64_t>(micro_batches.size());
  int64_t done = 0;
  for (const std::vector<size_t>& group : micro_batches) {
    std::vector<ScoredSample> samples;
    parts_.on_phase("scoring");
    parts_.on_progress(done, total);
    {
      PhaseTimer timer(&report->seconds["score"]);
      for (const size_t index : group) {
        ASSIGN_OR_RETURN(ScoredSample sample, pipeline_.TakeScored(index));
        samples.push_back(std::move(sample));
      }
    }
    parts_.on_phase("training");
    parts_.on_progress(done++, total);
    DAPD_FAILPOINT("train.before_micro_batch");
    PhaseTimer timer(&report->seconds["train"]);
    accumulator.Add(AccumulateMicroBatch(
        *parts_.weights,
        parts_.policy.live(),
        parts_.terms,
        samples,
        {.head = {.temperature = config.objective.temperature,
                  .workspace = &head_workspace_},
         .gradient_scale = 1.0 / static_cast<double>(count[0]),
         .limits = MakePassLimits(config.trainer)}));
  }
  DAPD_FAILPOINT("train.after_last_micro_batch");
  ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                   parts_.collective.Gather(accumulator.Serialize()));
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    RETURN_IF_ERROR(accumulator.Merge(parts[rank]));
  }
  if (parts_.collective.rank() == 0) report->objective = accumulator.Finish();
  return absl::OkStatus();
}

absl::Status BatchTrainer::PublishLive() {
  ASSIGN_OR_RETURN(auto update,
                   MakePolicyUpdate(*parts_.weights,
                                    &parts_.policy.live(),
                                    parts_.policy.version(),
                                    parts_.config.model.path,
                                    probe_ids_));
  live_digest_ = update->adapter.digest;
  parts_.rollouts.SetPolicy(std::move(update));
  return absl::OkStatus();
}

absl::Status BatchTrainer::PublishSnapshot() {
  ASSIGN_OR_RETURN(auto update,
                   MakePolicyUpdate(*parts_.weights,
                                    parts_.policy.snapshot(),
                                    parts_.policy.snapshot_version(),
                                    parts_.config.model.path,
                                    probe_ids_));
  parts_.teachers.SetSnapshot(std::move(update));
  return absl::OkStatus();
}

}  // namespace dapd
