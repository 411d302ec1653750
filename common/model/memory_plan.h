// What a run needs, by arithmetic from its configuration: an upper estimate to
// choose machines by, not a measurement.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "common/model/model_config.h"

namespace dapd {

struct MemoryPlan {
  int64_t lora_parameters = 0;
  // Peak bytes of one process of each role.
  double rollout_bytes = 0.0;
  double teacher_bytes = 0.0;
  double trainer_bytes = 0.0;
  double payload_bytes_a_step = 0.0;  // teachers to trainer
  double adapter_bytes = 0.0;         // trainer to each worker, a step
};

// Terms: base weights; KV caches of all slots (rollout); activations of the
// longest packed sample, one layer deep with recompute and all layers without
// (trainer); adapter, gradient and two moments in float32 (trainer); the chunks
// of logits (trainer: student, teacher and gradient).
MemoryPlan PlanMemory(const Config& config, const ModelConfig& model);

}  // namespace dapd
