#include "services/trainer/step/slice_trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "services/trainer/step/phase_timer.h"

namespace dapd {
namespace {

// How long to wait for scores before looking at the answers again.
constexpr absl::Duration kGlance = absl::Milliseconds(10);

int64_t BytesOfGradient(const Adapter& adapter) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : adapter.Tensors()) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

int64_t MemoryAhead(const BatchTrainerParts& parts) {
  // Ranks that share layers must train at the same time.
  return parts.config.trainer.train_while_sampling &&
                 parts.sharded_layers == nullptr
             ? parts.limits.ahead_bytes
             : 0;
}

// Returns the memory for gradients that wait for their turn, at most half of
// MemoryAhead: a gradient stands for all of a micro-batch's work, a pass for at
// most a third.
int64_t GradientMemory(const BatchTrainerParts& parts,
                       size_t micro_batches,
                       int64_t gradient_bytes) {
  return std::min(MemoryAhead(parts) / 2,
                  static_cast<int64_t>(micro_batches) * gradient_bytes);
}

}  // namespace

SliceTrainer::SliceTrainer(const BatchTrainerParts& parts,
                           SamplePipeline& pipeline,
                           HeadWorkspace& workspace,
                           size_t num_samples,
                           StepReport* report)
    : parts_(parts),
      pipeline_(pipeline),
      workspace_(workspace),
      report_(report),
      gradient_bytes_(BytesOfGradient(parts.policy.live())),
      limits_(MakePassLimits(parts.limits, *parts.weights)),
      micro_batches_(
          Group(num_samples,
                static_cast<size_t>(parts.config.trainer.micro_batch_size))),
      gradient_memory_(
          GradientMemory(parts, micro_batches_.size(), gradient_bytes_)),
      pass_memory_(MemoryAhead(parts) - gradient_memory_.left()),
      ahead_(*parts.weights,
             parts.policy.live(),
             parts.terms,
             limits_,
             pass_memory_),
      objective_(parts.terms) {
  pipeline_.SetMakeRoom([this] { return ahead_.GiveUp(); });
  std::vector<std::vector<Views>> known;
  for (const MicroBatch& micro_batch : micro_batches_) {
    known.emplace_back();
    for (size_t i = micro_batch.begin; i < micro_batch.end; ++i) {
      known.back().push_back(pipeline.KnownViews(i));
    }
  }
  ahead_.PlanReferences(known);
}

std::vector<SliceTrainer::MicroBatch> SliceTrainer::Group(size_t num_samples,
                                                          size_t size) {
  std::vector<MicroBatch> groups;
  for (size_t begin = 0; begin < num_samples; begin += size) {
    groups.push_back(
        {.begin = begin, .end = std::min(begin + size, num_samples)});
  }
  return groups;
}

bool SliceTrainer::IsAt(const MicroBatch& micro_batch,
                        SampleState state) const {
  for (size_t i = micro_batch.begin; i < micro_batch.end; ++i) {
    if (pipeline_.StateOf(i) < state) return false;
  }
  return true;
}

SliceTrainer::MicroBatch* SliceTrainer::FindTrainable() {
  for (size_t i = turn_; i < micro_batches_.size(); ++i) {
    MicroBatch& next = micro_batches_[i];
    if (i > turn_ && gradient_memory_.left() < gradient_bytes_) return nullptr;
    if (!next.is_done && IsAt(next, SampleState::kScored)) return &next;
  }
  return nullptr;
}

absl::Status SliceTrainer::TrainAhead(
    const std::function<bool()>& is_collected) {
  while (!is_collected()) {
    RETURN_IF_ERROR(pipeline_.AcceptScores(absl::ZeroDuration()));
    // This is checked before training, because the flag may be set late.
    const bool is_early = !std::ranges::all_of(
        micro_batches_, [this](const MicroBatch& micro_batch) {
          return IsAt(micro_batch, SampleState::kAnswered);
        });
    bool advanced = false;
    {
      ScopedSlice slice(parts_.timeline,
                        kPhasesTrack,
                        NameOf(TrainerPhase::kTraining),
                        /*joins=*/true);
      const PhaseTimer timer(
          &report_->seconds[TrainerPhase::kTraining],
          /*around=*/&report_->seconds[TrainerPhase::kRollout]);
      MicroBatch* const next = FindTrainable();
      if (next != nullptr) RETURN_IF_ERROR(Train(*next));
      advanced = next != nullptr || AdvanceForward();
      if (!advanced) slice.Drop();
    }
    if (is_early) report_->early_micro_batches = num_trained_;
    if (advanced) {
      parts_.on_ahead(report_->early_micro_batches, ahead_.tokens());
    } else {
      const ScopedSlice slice(parts_.timeline,
                              kComputeTrack,
                              "wait for answers",
                              /*joins=*/true);
      RETURN_IF_ERROR(pipeline_.AcceptScores(kGlance));
    }
  }
  return absl::OkStatus();
}

absl::Status SliceTrainer::TrainRest() {
  const auto total = static_cast<int64_t>(micro_batches_.size());
  while (turn_ < micro_batches_.size()) {
    RETURN_IF_ERROR(pipeline_.AcceptScores(absl::ZeroDuration()));
    const auto done = static_cast<int64_t>(std::ranges::count_if(
        micro_batches_, [](const MicroBatch& m) { return m.is_done; }));
    MicroBatch* const next = FindTrainable();
    {
      parts_.on_phase(next == nullptr ? TrainerPhase::kScoring
                                      : TrainerPhase::kTraining);
      parts_.on_progress(done, total);
      ScopedSlice slice(parts_.timeline,
                        kPhasesTrack,
                        NameOf(TrainerPhase::kTraining),
                        /*joins=*/true);
      const PhaseTimer timer(&report_->seconds[TrainerPhase::kTraining]);
      if (next != nullptr) RETURN_IF_ERROR(Train(*next));
      if (next != nullptr || AdvanceForward()) continue;
      slice.Drop();
    }
    const ScopedSlice phase(
        parts_.timeline, kPhasesTrack, NameOf(TrainerPhase::kScoring));
    const ScopedSlice wait(parts_.timeline, kComputeTrack, "wait for scores");
    const PhaseTimer timer(&report_->seconds[TrainerPhase::kScoring]);
    RETURN_IF_ERROR(pipeline_.AcceptScores(absl::InfiniteDuration()));
  }
  report_->forward_ahead_tokens = ahead_.tokens();
  return absl::OkStatus();
}

absl::Status SliceTrainer::Train(MicroBatch& micro_batch) {
  ASSIGN_OR_RETURN(const std::vector<ScoredSample> samples, Take(micro_batch));
  if (!samples.empty()) {
    DAPD_FAILPOINT("train.before_micro_batch");
    micro_batch.result = ComputeMicroBatch(
        *parts_.weights,
        parts_.policy.live(),
        parts_.terms,
        samples,
        {.head = {.temperature = parts_.config.objective.temperature,
                  .vocabulary = parts_.teacher_heads.vocabulary,
                  .bfloat16_logits = parts_.config.trainer.logits_precision ==
                                     Precision::kBfloat16,
                  .workspace = &workspace_},
         .limits = limits_,
         .ahead = &ahead_,
         .timeline = parts_.timeline});
    ++num_trained_;
    const bool waits = &micro_batch != &micro_batches_[turn_];
    if (waits && gradient_memory_.Take(gradient_bytes_)) {
      micro_batch.held_bytes = gradient_bytes_;
    }
  }
  ahead_.Forget(static_cast<size_t>(&micro_batch - micro_batches_.data()));
  micro_batch.is_done = true;
  AddInTurn();
  return absl::OkStatus();
}

void SliceTrainer::AddInTurn() {
  for (; turn_ < micro_batches_.size() && micro_batches_[turn_].is_done;
       ++turn_) {
    MicroBatch& next = micro_batches_[turn_];
    if (!next.result.has_value()) continue;
    AddToGradient(next.result->gradients, parts_.policy.live());
    objective_.Add(next.result->sums, next.result->by_teacher);
    report_->sampler_mismatch += next.result->sampler_mismatch;
    next.result.reset();
    gradient_memory_.Give(next.held_bytes);
  }
}

// A sample that no term scores, or that is left out, leaves a gap. A
// micro-batch that has only gaps does not count.
absl::StatusOr<std::vector<ScoredSample>> SliceTrainer::Take(
    const MicroBatch& micro_batch) {
  std::vector<ScoredSample> samples;
  const auto warn = [&](size_t i, const char* consequence) {
    LogWarning(absl::StrCat("step ",
                            report_->step,
                            ": the answer to problem '",
                            pipeline_.ProblemOf(i).id,
                            "' has nothing to score; ",
                            consequence));
  };
  for (size_t i = micro_batch.begin; i < micro_batch.end; ++i) {
    const SampleState state = pipeline_.StateOf(i);
    if (state == SampleState::kLeftOut) continue;
    if (state == SampleState::kUntrainable) {
      warn(i, "left out");
      continue;
    }
    ASSIGN_OR_RETURN(ScoredSample sample, pipeline_.TakeScored(i));
    const View& answer =
        sample.views[static_cast<size_t>(ViewName::kNoneRollout)];
    if (answer.scored_count == 0 && pipeline_.rules().needs_answers) {
      warn(i, "only its reference is trained");
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

// Whole passes come first, because samples that have their answers are trained
// soonest.
bool SliceTrainer::AdvanceForward() {
  for (size_t i = turn_; i < micro_batches_.size(); ++i) {
    MicroBatch& next = micro_batches_[i];
    if (next.is_done || next.has_planned_rollouts ||
        !IsAt(next, SampleState::kAnswered)) {
      continue;
    }
    std::vector<Views> known;
    for (size_t sample = next.begin; sample < next.end; ++sample) {
      if (pipeline_.StateOf(sample) < SampleState::kUntrainable) {
        known.push_back(pipeline_.KnownViews(sample));
      }
    }
    ahead_.PlanRollouts(i, known);
    next.has_planned_rollouts = true;
  }
  ScopedSlice slice(parts_.timeline, kComputeTrack, "forward ahead");
  if (ahead_.AdvancePass()) return true;
  for (size_t i = turn_; i < micro_batches_.size(); ++i) {
    if (micro_batches_[i].is_done) continue;
    for (size_t s = micro_batches_[i].begin; s < micro_batches_[i].end; ++s) {
      if (ahead_.AdvanceRollout(pipeline_.PrefixOf(s))) return true;
    }
  }
  slice.Drop();
  return false;
}

}  // namespace dapd
