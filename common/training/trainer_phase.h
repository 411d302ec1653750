// The phases of a trainer, and their names in status and files.
#pragma once

#include <array>
#include <cstddef>

namespace dapd {

enum class TrainerPhase {
  kStarting,
  kEvaluating,
  kRollout,     // answers are sampled and trained at the same time
  kScoring,     // nothing can be trained before the next score
  kTraining,    // losses and gradients
  kOptimizing,  // the step is taken
  kPublishing,  // the workers get the new policy
  kSaving,      // a checkpoint is written
  kDone,
};
inline constexpr size_t kNumTrainerPhases = 9;

struct TrainerPhaseName {
  TrainerPhase phase;
  const char* name;  // in the status and in dapd_trainer_phase: "scoring"
  // Name in the seconds of a step: "score". Null: the phase is not part of a
  // step.
  const char* part_of_step;
};

inline constexpr std::array<TrainerPhaseName, kNumTrainerPhases>
    kTrainerPhases = {{{TrainerPhase::kStarting, "starting", nullptr},
                       {TrainerPhase::kEvaluating, "evaluating", nullptr},
                       {TrainerPhase::kRollout, "rollout", "rollout"},
                       {TrainerPhase::kScoring, "scoring", "score"},
                       {TrainerPhase::kTraining, "training", "train"},
                       {TrainerPhase::kOptimizing, "optimizing", "optimizer"},
                       {TrainerPhase::kPublishing, "publishing", "publish"},
                       {TrainerPhase::kSaving, "saving", nullptr},
                       {TrainerPhase::kDone, "done", nullptr}}};

inline const char* NameOf(TrainerPhase phase) {
  return kTrainerPhases[static_cast<size_t>(phase)].name;
}

// Wall seconds by phase.
class PhaseSeconds {
 public:
  double& operator[](TrainerPhase phase) {
    return seconds_[static_cast<size_t>(phase)];
  }
  double operator[](TrainerPhase phase) const {
    return seconds_[static_cast<size_t>(phase)];
  }
  double Sum() const {
    double sum = 0.0;
    for (const double seconds : seconds_) sum += seconds;
    return sum;
  }

 private:
  std::array<double, kNumTrainerPhases> seconds_ = {};
};

}  // namespace dapd
