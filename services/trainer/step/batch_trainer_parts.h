// The parts that a BatchTrainer is made of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/collective.h"
#include "common/collective/device_group.h"
#include "common/config/config.h"
#include "common/data/dataset.h"
#include "common/data/view_builder.h"
#include "common/grader/grading_desk.h"
#include "common/model/spec/pass_memory.h"
#include "common/model/weights/weights.h"
#include "common/objective/teacher_heads.h"
#include "common/sharding/sharded_layers.h"
#include "common/terms/term.h"
#include "common/timeline/timeline.h"
#include "common/training/policy.h"
#include "common/training/trainer_phase.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

// All referenced objects must outlive the trainer.
struct BatchTrainerParts {
  const Config& config;
  std::shared_ptr<const ModelWeights> weights;
  const Tokenizer& tokenizer;
  const ViewBuilder& views;
  const std::vector<Term>& terms;
  const Dataset& data;
  RolloutClient& rollouts;
  TeacherClient& teachers;  // the student's own and the further ones
  const TeacherHeads& teacher_heads;
  Collective& collective;
  DeviceGroup& devices;
  ShardedLayers* sharded_layers;  // of `weights`; null: unsharded
  Policy& policy;                 // the same on all ranks
  TrainerLimits limits;           // of the weights' device
  std::string attempt_key;        // as PolicyPublisherParts has it
  // Gets each phase of a step.
  std::function<void(TrainerPhase phase)> on_phase;
  // Gets the number of this rank's answers or micro-batches of the phase that
  // are done. Called from another thread while answers are collected, but never
  // at the same time as on_phase.
  std::function<void(int64_t done, int64_t total)> on_progress;
  // Gets the number of the step's micro-batches that were trained while answers
  // were still missing, and the number of tokens of other micro-batches that
  // went through a forward pass meanwhile.
  std::function<void(int64_t micro_batches, int64_t tokens)> on_ahead;
  // Gets the version of the policy that the rollout workers serve from now on.
  std::function<void(int64_t version)> on_served;
  Timeline* timeline = nullptr;   // null: none
  GradingDesk* grader = nullptr;  // null: the built-in grader grades
};

}  // namespace dapd
