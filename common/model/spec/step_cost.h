// The computation, memory traffic and network traffic of a step, counted from
// the configuration, and the time that they take on hardware of which three
// rates are known. Nothing is simulated: docs/scale.md derives every formula
// and compares the predictions with measured steps.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/config/config.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/model_config.h"
#include "common/terms/view.h"

namespace dapd {

// Means over samples, in tokens.
struct ViewLengths {
  double tokens = 0;
  double squares = 0;  // squared tokens, the cost of attention
  double scored = 0;
};
// "none_rollout", ...: all six views, and the others that terms read. A rollout
// is the scored part of none_rollout, and its prompt the rest of that view.
using SampleLengths = std::map<std::string, ViewLengths>;
// Returns answers and references of the greatest length that the configuration
// allows, prompts of 200 tokens and privileged templates of 130.
SampleLengths LongestSamples(const Config& config);
// Returns the views of one sample that terms train. A view with which another
// view begins has no tokens: it passes as a part of the longer one.
std::map<ViewName, ViewLengths> LiveViews(const Config& config,
                                          const SampleLengths& lengths);

// Totals of one optimizer step over all workers and ranks.
struct StepWork {
  double live_tokens = 0;     // through the trunk with gradient
  double teacher_tokens = 0;  // through the trunk without gradient
  double head_rows = 0;       // tokens times students or teachers, forward
  double trainer_flops = 0;   // forward, recomputation, backward, head
  double teacher_flops = 0;
  double further_flops = 0;  // of further teachers, and of the busiest worker
  double further_flops_of_worker = 0;
  // Sequential decode steps of a worker, and what one step reads (weights and
  // caches) and computes for all of the worker's sequences side by side.
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

// `snapshot_is_base`: before the first refresh. run.rollout_workers is the
// number of workers; micro-batches run one after another on each rank. A pass
// of the teacher that a row names counts for every teacher in equal shares.
StepWork CountStepWork(const Config& config,
                       const ModelConfig& model,
                       const SampleLengths& lengths,
                       bool snapshot_is_base,
                       const FurtherTeachers& teachers = {});

// Measured rates of one device: of matrix products at their usual sizes, of
// reading its memory, and of its network link.
struct HardwareRates {
  double flops = 0;          // per second
  double memory_bytes = 0;   // per second
  double network_bytes = 0;  // per second
  // The time of a sum between the GPUs of one machine while a worker decodes:
  // until the partial results have arrived and are added. NCCL's own share has
  // not been measured for this project; published measurements give about 8 us.
  // Twice that and the addition are assumed, so that more GPUs for a worker are
  // recommended only if they pay even then.
  double sum_seconds = 20e-6;
};

// Returns the rates assumed for unknown devices: the table of docs/scale.md, or
// the rates of one core if CPUs compute the model. The comparison of splits
// depends only on the proportions of the rates.
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
