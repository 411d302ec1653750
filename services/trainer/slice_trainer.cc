#include "services/trainer/slice_trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/objective/micro_batch.h"
#include "services/trainer/phase_timer.h"

namespace dapd {
namespace {

// How long scores are waited for before the answers are looked at again.
constexpr absl::Duration kGlance = absl::Milliseconds(10);

}  // namespace

SliceTrainer::SliceTrainer(const BatchTrainerParts& parts,
                           SamplePipeline& pipeline,
                           HeadWorkspace& workspace,
                           size_t num_samples,
                           StepReport* report)
    : parts_(parts),
      pipeline_(pipeline),
      workspace_(workspace),
      num_samples_(num_samples),
      report_(report),
      objective_(parts.terms) {}

size_t SliceTrainer::End() const {
  const auto size = static_cast<size_t>(parts_.config.trainer.micro_batch_size);
  return std::min(next_ + size, num_samples_);
}

bool SliceTrainer::IsScored() const {
  for (size_t i = next_; i < End(); ++i) {
    if (pipeline_.StateOf(i) == SampleState::kIncomplete) return false;
  }
  return true;
}

absl::Status SliceTrainer::TrainAhead(
    const std::function<bool()>& is_collected) {
  while (!is_collected()) {
    if (next_ == num_samples_ || !IsScored()) {
      RETURN_IF_ERROR(pipeline_.AcceptScores(kGlance));
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<ScoredSample> samples, Take());
    if (samples.empty()) continue;
    const PhaseTimer timer(&report_->seconds["train"],
                           /*around=*/&report_->seconds["rollout"]);
    Train(samples);
    parts_.on_trained_ahead(++report_->early_micro_batches);
  }
  return absl::OkStatus();
}

absl::Status SliceTrainer::TrainRest() {
  const auto size = static_cast<size_t>(parts_.config.trainer.micro_batch_size);
  const auto total = static_cast<int64_t>((num_samples_ + size - 1) / size);
  while (next_ < num_samples_) {
    const auto done = static_cast<int64_t>(next_ / size);
    std::vector<ScoredSample> samples;
    parts_.on_phase("scoring");
    parts_.on_progress(done, total);
    {
      const PhaseTimer timer(&report_->seconds["score"]);
      ASSIGN_OR_RETURN(samples, Take());
    }
    if (samples.empty()) continue;
    parts_.on_phase("training");
    parts_.on_progress(done, total);
    const PhaseTimer timer(&report_->seconds["train"]);
    Train(samples);
  }
  return absl::OkStatus();
}

// A sample with nothing to score leaves a gap, and a micro-batch of gaps only
// does not count.
absl::StatusOr<std::vector<ScoredSample>> SliceTrainer::Take() {
  std::vector<ScoredSample> samples;
  for (const size_t end = End(); next_ < end; ++next_) {
    if (pipeline_.StateOf(next_) == SampleState::kUntrainable) {
      LogWarning(absl::StrCat("step ",
                              report_->step,
                              ": the answer to problem '",
                              pipeline_.ProblemOf(next_).id,
                              "' has nothing to score; left out"));
      continue;
    }
    ASSIGN_OR_RETURN(ScoredSample sample, pipeline_.TakeScored(next_));
    samples.push_back(std::move(sample));
  }
  return samples;
}

void SliceTrainer::Train(const std::vector<ScoredSample>& samples) {
  const Config& config = parts_.config;
  DAPD_FAILPOINT("train.before_micro_batch");
  ++num_trained_;
  objective_.Add(AccumulateMicroBatch(
      *parts_.weights,
      parts_.policy.live(),
      parts_.terms,
      samples,
      {.head = {.temperature = config.objective.temperature,
                .workspace = &workspace_},
       .limits = MakePassLimits(config.trainer)}));
}

}  // namespace dapd
