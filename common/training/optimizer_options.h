// Options of an optimizer step, which depends on nothing else but its gradient,
// and the schedule of its learning rate.
#pragma once

#include <cstdint>
#include <optional>

#include "common/config/config.h"

namespace dapd {

struct OptimizerOptions {
  double learning_rate = 5e-6;
  int64_t schedule_steps = 500;  // the rate falls linearly to zero over these
  double max_grad_norm = 0.1;    // of all gradients together
  int64_t snapshot_interval = 100;
  bool keep_previous = false;      // keep the adapter of the step before
  std::optional<double> ema_rate;  // none: no moving average
  // Whether the first update sets the moving average to the adapter instead of
  // moving it.
  bool ema_from_first_update = false;
};

OptimizerOptions MakeOptimizerOptions(const Config& config);

// Returns the rate of optimizer step `step`, counted from 1: lr (1 - (step-1) /
// N).
double LearningRateAt(const OptimizerOptions& options, int64_t step);

}  // namespace dapd
