#include "common/training/optimizer_options.h"

#include <algorithm>

#include "common/config/preset_terms.h"

namespace dapd {

OptimizerOptions MakeOptimizerOptions(const Config& config) {
  OptimizerOptions options{
      .learning_rate = config.trainer.learning_rate,
      .schedule_steps = config.trainer.schedule_steps,
      .max_grad_norm = config.trainer.max_grad_norm,
      .snapshot_interval = config.teacher.snapshot_interval,
      .keep_previous = config.rollout.max_staleness > 0};
  for (const TeacherPass& pass : TeacherPasses(ExpandTerms(config.objective))) {
    if (pass.weights == WeightSet::kEma) {
      options.ema_rate = config.teacher.ema_rate;
      options.ema_from_first_update =
          config.teacher.ema_start == EmaStart::kFirstUpdate;
    }
  }
  return options;
}

double LearningRateAt(const OptimizerOptions& options, int64_t step) {
  const double done = static_cast<double>(step - 1) /
                      static_cast<double>(options.schedule_steps);
  return options.learning_rate * std::max(0.0, 1.0 - done);
}

}  // namespace dapd
