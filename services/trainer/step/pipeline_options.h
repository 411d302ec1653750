// How a run's SamplePipeline works, which follows from its terms, its
// configuration and its device.
#pragma once

#include <cstdint>
#include <functional>

#include "common/tensor/aten.h"
#include "services/trainer/step/rollout_record.h"
#include "services/trainer/step/score_plan.h"

namespace dapd {

struct BatchTrainerParts;

struct PipelineOptions {
  ScoreQuestions scores;
  RecordOptions records;
  at::Device device = at::kCPU;
  // Tokens of an answer between two pieces of news to the teachers; 0: none.
  int64_t teacher_prefix_stride = 0;
  // Tokens of an answer between two values of PrefixOf; 0: it has none.
  int64_t forward_prefix_stride = 0;
  // Called as answers arrive, from CollectRollouts; may be empty.
  std::function<void(int64_t done, int64_t total)> on_progress;
};

PipelineOptions MakePipelineOptions(const BatchTrainerParts& parts);

}  // namespace dapd
