// What a step computes, reads and sends, counted from the configuration, and
// how long that takes on hardware of which three rates are known. Nothing is
// simulated: docs/scale.md derives every formula and compares the predictions
// with measured steps.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"
#include "common/terms/view.h"

namespace dapd {

// Means over samples, in tokens.
struct ViewLengths {
  double tokens = 0;
  double squares = 0;  // of the tokens: what attention costs
  double scored = 0;
};
// "none_rollout", ...: all six, and those that terms read besides. A rollout is
// what none_rollout scores, and its prompt the rest of that view.
using SampleLengths = std::map<std::string, ViewLengths>;
// Answers and references as long as the configuration lets them be, prompts of
// 200 tokens and privileged templates of 130.
SampleLengths LongestSamples(const Config& config);
// Of one sample the views that terms train. One with which another begins has
// no tokens: it passes as a part of that one.
std::map<ViewName, ViewLengths> LiveViews(const Config& config,
                                          const SampleLengths& lengths);

// Totals of one optimizer step over all workers and ranks.
struct StepWork {
  double live_tokens = 0;     // through the trunk with gradient
  double teacher_tokens = 0;  // through the trunk without
  double head_rows = 0;       // tokens times students or teachers, forward
  double trainer_flops = 0;   // forward, recomputation, backward, head
  double teacher_flops = 0;
  // Sequential decode steps of a worker, what one reads (weights and caches)
  // and computes, for all of the worker's sequences side by side.
  double decode_steps = 0;
  double decode_bytes = 0;
  double decode_flops = 0;
  double decode_sums = 0;    // between a worker's ranks, in each decode step
  double prefill_flops = 0;  // of a worker
  double payload_bytes = 0;  // teachers to trainer
  double adapter_bytes = 0;  // trainer to each worker
  double reduce_bytes = 0;   // of gradients through each rank's link
  double gather_bytes = 0;   // of base layers through each rank's link
};

// `snapshot_is_base`: before the first refresh. Workers are those of
// run.rollout_workers; micro-batches run one after another at each rank.
StepWork CountStepWork(const Config& config,
                       const ModelConfig& model,
                       const SampleLengths& lengths,
                       bool snapshot_is_base);

// Of one device, as measured: of its matrix products at their usual sizes, of
// its memory when read, of its network link.
struct HardwareRates {
  double flops = 0;          // a second
  double memory_bytes = 0;   // a second
  double network_bytes = 0;  // a second
  // Of a sum between the GPUs of one machine while a worker decodes: until the
  // partial results are there and added up. NCCL's own share has never been
  // measured here and is about 8 us by others' measurements. Twice that and the
  // addition are assumed, so that more GPUs for a worker are recommended only
  // where they pay even then.
  double sum_seconds = 20e-6;
};

// What is assumed where nothing is known of the devices: the rates of
// docs/scale.md's table, or those of one core where the model is computed on
// CPUs. How a split compares with others depends on their proportions only.
HardwareRates AssumedRates(const Config& config);

struct StepSeconds {
  double rollout = 0;  // decode steps and prefill
  double teacher = 0;
  double trainer = 0;
  double network = 0;  // payload, push, gradient sum and gathers
  double Serial() const { return rollout + teacher + trainer + network; }
};
StepSeconds PredictStep(const Config& config,
                        const StepWork& work,
                        const HardwareRates& rates);

}  // namespace dapd
